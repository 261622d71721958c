//go:build !linux

package steady

import "time"

func allowed() []int        { return []int{0} }
func pin(int)               {}
func sleep(d time.Duration) { time.Sleep(d) }
