// SPDX-License-Identifier: Apache-2.0

// Command testcsi is a CSI driver for tests. Its volumes are ext4 images in a btrfs pool. A snapshot is a reflink
// of the image, so it holds exactly what the disk held at that moment and nothing that was still in memory: the
// same promise that a cloud disk makes. A group snapshot is one btrfs snapshot of all images at once.
//
// The knobs file (see knobs.go) makes it slow, late or broken on purpose.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	regv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	d := &driver{inFlight: map[string]bool{}}
	endpoint := flag.String("endpoint", "", "unix socket to serve CSI on")
	registration := flag.String("registration-socket", "", "unix socket on which the kubelet finds this driver")
	flag.StringVar(&d.pool, "pool", "", "mount point of the btrfs file system that holds the volumes")
	flag.StringVar(&d.nodeID, "node-id", "", "id of this node")
	flag.StringVar(&d.name, "driver-name", "image.csi.stillpoint.test", "name of the driver")
	flag.StringVar(&d.knobFile, "knobs", "", "JSON file with the knobs, read at every call; it need not exist")
	flag.Parse()
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	if *endpoint == "" || d.pool == "" || d.nodeID == "" {
		log.Fatal("--endpoint, --pool and --node-id are needed")
	}
	if err := d.open(); err != nil {
		log.Fatal(err)
	}

	if *registration != "" {
		l, err := listen(*registration)
		if err != nil {
			log.Fatal(err)
		}
		s := grpc.NewServer()
		regv1.RegisterRegistrationServer(s, &registrar{name: d.name, endpoint: *endpoint})
		go func() { log.Fatal(s.Serve(l)) }()
	}

	l, err := listen(*endpoint)
	if err != nil {
		log.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(logCall))
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	csi.RegisterGroupControllerServer(s, d)
	csi.RegisterNodeServer(s, d)
	log.Fatal(s.Serve(l))
}

// listen serves on a unix socket; a socket file left by an earlier process is replaced.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return l, nil
}

func logCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := next(ctx, req)
	if !strings.HasSuffix(info.FullMethod, "/Probe") {
		log.Printf("%s took=%v err=%v", info.FullMethod, time.Since(start), err)
	}
	return resp, err
}

// registrar tells the kubelet about this driver.
type registrar struct {
	regv1.UnimplementedRegistrationServer
	name, endpoint string
}

func (r *registrar) GetInfo(context.Context, *regv1.InfoRequest) (*regv1.PluginInfo, error) {
	return &regv1.PluginInfo{Type: regv1.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *regv1.RegistrationStatus) (*regv1.RegistrationStatusResponse, error) {
	log.Printf("kubelet registration: registered=%v error=%q", s.PluginRegistered, s.Error)
	return &regv1.RegistrationStatusResponse{}, nil
}
