// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.nodeID}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{
		Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{
			Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		}},
	}}}, nil
}

func mounted(path string) bool { return exec.Command("mountpoint", "-q", path).Run() == nil }

// loopDevice names the loop device of an image; "" means that it has none.
func loopDevice(image string) (string, error) {
	return run("losetup", "-j", image, "-O", "NAME", "-n")
}

func (d *driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	target := r.StagingTargetPath
	if mounted(target) {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	image := d.image(r.VolumeId)
	if _, err := os.Stat(image); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	dev, err := loopDevice(image)
	if err != nil {
		return nil, err
	}
	if dev == "" {
		if dev, err = run("losetup", "-f", "--show", image); err != nil {
			return nil, err
		}
	}
	if exec.Command("blkid", "-p", dev).Run() != nil {
		if _, err := run("mkfs.ext4", "-q", "-F", dev); err != nil {
			return nil, err
		}
	}
	if _, err := run("mount", "-t", "ext4", dev, target); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if mounted(r.StagingTargetPath) {
		if _, err := run("umount", r.StagingTargetPath); err != nil {
			return nil, err
		}
	}
	dev, err := loopDevice(d.image(r.VolumeId))
	if err != nil {
		return nil, err
	}
	if dev != "" {
		if _, err := run("losetup", "-d", dev); err != nil {
			return nil, err
		}
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if mounted(r.TargetPath) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := os.MkdirAll(r.TargetPath, 0o755); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	args := []string{"--bind", r.StagingTargetPath, r.TargetPath}
	if r.Readonly {
		args = append(args, "-o", "ro")
	}
	if _, err := run("mount", args...); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if mounted(r.TargetPath) {
		if _, err := run("umount", r.TargetPath); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(r.TargetPath); err != nil && !os.IsNotExist(err) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
