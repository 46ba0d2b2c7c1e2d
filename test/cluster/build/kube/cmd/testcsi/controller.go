// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const defaultVolumeSize = 64 << 20 // bytes

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.VolumeCapabilities},
	}, nil
}

func (d *driver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.st.Volumes {
		if v.Name == r.Name {
			return volumeResponse(v, r), nil
		}
	}
	v := &volume{ID: d.newID("vol"), Name: r.Name, Size: r.GetCapacityRange().GetRequiredBytes()}
	if v.Size == 0 {
		v.Size = defaultVolumeSize
	}
	if name := r.Parameters["csi.storage.k8s.io/pvc/name"]; name != "" {
		v.Claim = r.Parameters["csi.storage.k8s.io/pvc/namespace"] + "/" + name
	}
	src, size, err := d.contentSource(r.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	if v.Size < size {
		return nil, status.Errorf(codes.OutOfRange, "%d bytes asked for, but the source has %d", v.Size, size)
	}
	if src != "" {
		if err := reflink(src, d.image(v.ID)); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	if err := growFile(d.image(v.ID), v.Size); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	d.st.Volumes[v.ID] = v
	d.save()
	return volumeResponse(v, r), nil
}

func volumeResponse(v *volume, r *csi.CreateVolumeRequest) *csi.CreateVolumeResponse {
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Size, ContentSource: r.VolumeContentSource}}
}

// contentSource names the file and the size in bytes that a new volume starts from; "" means empty.
func (d *driver) contentSource(s *csi.VolumeContentSource) (file string, size int64, err error) {
	if from := s.GetSnapshot(); from != nil {
		snap := d.st.Snapshots[from.SnapshotId]
		if snap == nil {
			return "", 0, status.Errorf(codes.NotFound, "there is no snapshot %s", from.SnapshotId)
		}
		if time.Now().Before(snap.ReadyAt) {
			return "", 0, status.Errorf(codes.Unavailable, "snapshot %s is not ready", from.SnapshotId)
		}
		return filepath.Join(d.pool, snap.File), snap.Size, nil
	}
	if from := s.GetVolume(); from != nil {
		v := d.st.Volumes[from.VolumeId]
		if v == nil {
			return "", 0, status.Errorf(codes.NotFound, "there is no volume %s", from.VolumeId)
		}
		return d.image(v.ID), v.Size, nil
	}
	return "", 0, nil
}

func growFile(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (d *driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.st.Volumes[r.VolumeId]; v != nil {
		if err := os.Remove(d.image(v.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, status.Error(codes.Internal, err.Error())
		}
		delete(d.st.Volumes, v.ID)
		d.save()
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func snapshotMessage(s *snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.VolumeID, GroupSnapshotId: s.GroupID, SizeBytes: s.Size,
		CreationTime: timestamppb.New(s.Created), ReadyToUse: !time.Now().Before(s.ReadyAt),
	}
}

// CreateSnapshot cuts once a name, however often it is called. A caller that gave up does not undo the cut, as with
// a real array: the next call for the same name finds the snapshot.
func (d *driver) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	k := d.knobs()
	v, done, err := d.beginSnapshot(r, k)
	if err != nil {
		return nil, err
	}
	if done != nil {
		return &csi.CreateSnapshotResponse{Snapshot: snapshotMessage(done)}, nil
	}
	defer d.end(r.Name)
	k.CutDelay.sleep()
	s, err := d.cut(r.Name, v, time.Duration(k.ReadyDelay))
	if err != nil {
		return nil, err
	}
	k.ReplyDelay.sleep()
	return &csi.CreateSnapshotResponse{Snapshot: snapshotMessage(s)}, nil
}

func (d *driver) beginSnapshot(r *csi.CreateSnapshotRequest, k knobs) (*volume, *snapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inFlight[r.Name] {
		return nil, nil, status.Errorf(codes.Aborted, "snapshot %s is being taken", r.Name)
	}
	for _, s := range d.st.Snapshots {
		if s.Name == r.Name {
			return nil, s, nil
		}
	}
	v := d.st.Volumes[r.SourceVolumeId]
	if v == nil {
		return nil, nil, status.Errorf(codes.NotFound, "there is no volume %s", r.SourceVolumeId)
	}
	if k.fails(v) {
		return nil, nil, status.Error(codes.Internal, k.FailCreateSnapshot)
	}
	d.begin(r.Name)
	return v, nil, nil
}

func (d *driver) cut(name string, v *volume, readyDelay time.Duration) (*snapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &snapshot{ID: d.newID("snap"), Name: name, VolumeID: v.ID, Size: v.Size}
	s.File = filepath.Join("snaps", s.ID+".img")
	if err := reflink(d.image(v.ID), filepath.Join(d.pool, s.File)); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	s.Created = time.Now()
	s.ReadyAt = s.Created.Add(readyDelay)
	d.st.Snapshots[s.ID] = s
	d.save()
	return s, nil
}

func (d *driver) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.st.Snapshots[r.SnapshotId]
	if s == nil {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if s.GroupID != "" {
		return nil, status.Errorf(codes.InvalidArgument, "snapshot %s belongs to group %s", s.ID, s.GroupID)
	}
	if err := os.Remove(filepath.Join(d.pool, s.File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	delete(d.st.Snapshots, s.ID)
	d.save()
	return &csi.DeleteSnapshotResponse{}, nil
}

func (d *driver) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for id, s := range d.st.Snapshots {
		if (r.SnapshotId == "" || r.SnapshotId == id) && (r.SourceVolumeId == "" || r.SourceVolumeId == s.VolumeID) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	resp := &csi.ListSnapshotsResponse{}
	for _, id := range ids {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotMessage(d.st.Snapshots[id])})
	}
	return resp, nil
}
