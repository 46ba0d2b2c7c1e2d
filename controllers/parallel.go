// SPDX-License-Identifier: Apache-2.0

package controllers

import "sync"

// parallel calls do with 0..n-1, at most limit at a time, and returns when all have returned.
func parallel(limit, n int, do func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	wg.Wait()
}
