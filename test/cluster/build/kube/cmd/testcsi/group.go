// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (d *driver) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

func (d *driver) groupMessage(g *group) *csi.VolumeGroupSnapshot {
	m := &csi.VolumeGroupSnapshot{GroupSnapshotId: g.ID, CreationTime: timestamppb.New(g.Created), ReadyToUse: true}
	for _, id := range g.Snapshots {
		s := snapshotMessage(d.st.Snapshots[id])
		m.ReadyToUse = m.ReadyToUse && s.ReadyToUse
		m.Snapshots = append(m.Snapshots, s)
	}
	return m
}

// CreateVolumeGroupSnapshot cuts all volumes at one moment: one btrfs snapshot of the directory with their images.
func (d *driver) CreateVolumeGroupSnapshot(_ context.Context, r *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	k := d.knobs()
	done, err := d.beginGroup(r, k)
	if err != nil || done != nil {
		return done, err
	}
	defer d.end(r.Name)
	k.CutDelay.sleep()
	resp, err := d.cutGroup(r, time.Duration(k.ReadyDelay))
	if err != nil {
		return nil, err
	}
	k.ReplyDelay.sleep()
	return resp, nil
}

// beginGroup answers with the group if it exists already, and with nothing if it is to be taken.
func (d *driver) beginGroup(r *csi.CreateVolumeGroupSnapshotRequest, k knobs) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inFlight[r.Name] {
		return nil, status.Errorf(codes.Aborted, "group snapshot %s is being taken", r.Name)
	}
	for _, g := range d.st.Groups {
		if g.Name == r.Name {
			return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: d.groupMessage(g)}, nil
		}
	}
	for _, id := range r.SourceVolumeIds {
		v := d.st.Volumes[id]
		if v == nil {
			return nil, status.Errorf(codes.NotFound, "there is no volume %s", id)
		}
		if k.fails(v) {
			return nil, status.Error(codes.Internal, k.FailCreateSnapshot)
		}
	}
	d.begin(r.Name)
	return nil, nil
}

func (d *driver) cutGroup(r *csi.CreateVolumeGroupSnapshotRequest, readyDelay time.Duration) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := &group{ID: d.newID("group"), Name: r.Name}
	dir := filepath.Join("groups", g.ID)
	if _, err := run("btrfs", "subvolume", "snapshot", "-r", filepath.Join(d.pool, "vols"), filepath.Join(d.pool, dir)); err != nil {
		return nil, err
	}
	g.Created = time.Now()
	for _, id := range r.SourceVolumeIds {
		s := &snapshot{
			ID: d.newID("snap"), Name: g.Name + "/" + id, VolumeID: id, GroupID: g.ID, File: filepath.Join(dir, id+".img"),
			Size: d.st.Volumes[id].Size, Created: g.Created, ReadyAt: g.Created.Add(readyDelay),
		}
		d.st.Snapshots[s.ID] = s
		g.Snapshots = append(g.Snapshots, s.ID)
	}
	d.st.Groups[g.ID] = g
	d.save()
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: d.groupMessage(g)}, nil
}

func (d *driver) GetVolumeGroupSnapshot(_ context.Context, r *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.st.Groups[r.GroupSnapshotId]
	if g == nil {
		return nil, status.Errorf(codes.NotFound, "there is no group snapshot %s", r.GroupSnapshotId)
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: d.groupMessage(g)}, nil
}

func (d *driver) DeleteVolumeGroupSnapshot(_ context.Context, r *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.st.Groups[r.GroupSnapshotId]
	if g == nil {
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
	}
	if _, err := run("btrfs", "subvolume", "delete", filepath.Join(d.pool, "groups", g.ID)); err != nil {
		return nil, err
	}
	for _, id := range g.Snapshots {
		delete(d.st.Snapshots, id)
	}
	delete(d.st.Groups, g.ID)
	d.save()
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}
