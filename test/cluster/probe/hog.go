// SPDX-License-Identifier: Apache-2.0

package main

import "runtime"

type hogging struct {
	Action  string `json:"action"`
	Threads int    `json:"threads"`
}

// hog keeps as many threads busy as this process may use CPUs, also during the actions that follow.
func hog() hogging {
	n := runtime.NumCPU()
	runtime.GOMAXPROCS(n + 1) // one for the actions
	for range n {
		go func() {
			runtime.LockOSThread()
			for i := 0; ; i++ {
			}
		}()
	}
	return hogging{Action: "hog", Threads: n}
}
