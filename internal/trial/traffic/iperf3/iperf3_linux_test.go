package iperf3

import (
	"testing"
)

func TestListens(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue
   0: 0100007F:14B3 00000000:0000 0A 00000000:00000000 00:00000000
   1: 0100007F:14B4 0100007F:9999 01 00000000:00000000 00:00000000`
	for port, want := range map[int]bool{0x14B3: true, 0x14B4: false, 0x9999: false, 1: false} {
		if got := listens([]byte(table), port); got != want {
			t.Errorf("port %d: listening %v, want %v", port, got, want)
		}
	}
}
