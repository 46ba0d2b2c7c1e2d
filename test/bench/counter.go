// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// counter stands between the operator and the API server and counts what is asked. It is only used where no time is measured.
type counter struct {
	server *httptest.Server

	mu     sync.Mutex
	counts map[string]int
}

var requestInfo = apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// count the requests of whoever connects with config. The connection to the returned one is not encrypted, so that upgraded connections pass, too.
func count(config *rest.Config) (*counter, *rest.Config, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, nil, err
	}
	one := rest.CopyConfig(config)
	one.NextProtos = []string{"http/1.1"} // an exec upgrades its connection
	transport, err := rest.TransportFor(one)
	if err != nil {
		return nil, nil, err
	}
	c := &counter{counts: map[string]int{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	c.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.note(r)
		proxy.ServeHTTP(w, r)
	}))
	return c, &rest.Config{Host: c.server.URL, QPS: -1}, nil
}

func (c *counter) stop() {
	c.server.CloseClientConnections()
	c.server.Close()
}

func (c *counter) note(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[kindOf(r)]++
}

// kindOf a request: its verb and resource, as RBAC names them.
func kindOf(r *http.Request) string {
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return strings.ToLower(r.Method) + " " + r.URL.Path
	}
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	return info.Verb + " " + resource
}

// constant are the requests that do not depend on what there is to do.
func constant(kind string) bool {
	verb, resource, _ := strings.Cut(kind, " ")
	return verb == "watch" || resource == "leases"
}

// take what was counted since the last time, but for watches and the lease.
func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.counts
	c.counts = map[string]int{}
	maps.DeleteFunc(out, func(kind string, _ int) bool { return constant(kind) })
	return out
}

func sum(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// list the counts, per that many runs.
func list(counts map[string]int, per int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s: %g", kind, round(float64(counts[kind])/float64(per))))
	}
	return strings.Join(parts, "\n")
}
