# The operator, for linux/amd64 and linux/arm64: one static binary and nothing else, no shell either. "make image" builds the binaries
# first. Time zones are built in; the API server's certificate comes with the pod's ServiceAccount.
FROM scratch
ARG TARGETARCH
COPY dist/image/linux_${TARGETARCH}/stillpoint /stillpoint
USER 65532:65532
ENTRYPOINT ["/stillpoint"]
