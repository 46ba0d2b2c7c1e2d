// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const nodeName = "bench"

// node plays a kubelet: it accepts every exec, and every command succeeds at once.
type node struct{ server *httptest.Server }

func startNode() *node {
	n := &node{server: httptest.NewUnstartedServer(http.HandlerFunc(answerExec))}
	n.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	n.server.StartTLS() // the API server does not ask who a kubelet is unless it is told to
	return n
}

func (n *node) stop() { n.server.Close() }

// register the node, so that the API server finds the kubelet of its pods.
func (n *node) register(ctx context.Context, cl client.Client) error {
	address := n.server.Listener.Addr().(*net.TCPAddr)
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if err := cl.Create(ctx, o); err != nil {
		return err
	}
	o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	o.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
	return cl.Status().Update(ctx, o)
}

// answerExec answers one call, which the API server brings over SPDY.
func answerExec(w http.ResponseWriter, r *http.Request) {
	streams := 1 // the one of the exit code
	for _, name := range []string{corev1.ExecStdinParam, corev1.ExecStdoutParam, corev1.ExecStderrParam} {
		if v := r.URL.Query().Get(name); v == "1" || v == "true" {
			streams++
		}
	}
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name}); err != nil {
		return
	}
	type stream struct {
		httpstream.Stream
		replySent <-chan struct{}
	}
	opened := make(chan stream, streams)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replySent <-chan struct{}) error {
		opened <- stream{s, replySent}
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	var status httpstream.Stream
	for range streams {
		select {
		case s := <-opened:
			<-s.replySent
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				status = s.Stream
			}
		case <-conn.CloseChan():
			return
		}
	}
	if status == nil {
		return
	}
	if raw, err := json.Marshal(metav1.Status{Status: metav1.StatusSuccess}); err == nil {
		_, _ = status.Write(raw) // the caller is gone if this fails
	}
}
