# The operator, for linux/amd64 and linux/arm64: one static binary and nothing else, no shell either.
#   docker build --build-arg VERSION=v0.1.0 -t stillpoint .
#   docker buildx build --platform linux/amd64,linux/arm64 ...
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY main.go ./
COPY api ./api
COPY controllers ./controllers
COPY hooks ./hooks
COPY internal ./internal
ARG TARGETOS TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /stillpoint .

# Time zones are built in; the API server's certificate comes with the pod's ServiceAccount.
FROM scratch
COPY --from=build /stillpoint /stillpoint
USER 65532:65532
ENTRYPOINT ["/stillpoint"]
