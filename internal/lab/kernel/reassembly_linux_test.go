package kernel

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReassembly: first fragments of packets whose others never come take up the memory for fragments until
// they time out.
func TestReassembly(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		must(t, Up("lo"))
		must(t, WriteSysctl("net.ipv4.ipfrag_time", "2"))
		must(t, WriteSysctl("net.ipv4.ipfrag_high_thresh", "4194304"))
		if got := Reassembly(); got != 0 {
			t.Errorf("before: got %v, want 0", got)
		}

		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		must(t, err)
		defer unix.Close(fd)
		const size = 32 << 10 // the kernel keeps more than the bytes
		packet := make([]byte, size)
		packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(packet[6:], 1<<13) // more fragments follow
		copy(packet[12:], []byte{127, 0, 0, 1, 127, 0, 0, 1})
		for i := range 4194304 / size / 2 {
			binary.BigEndian.PutUint16(packet[4:], uint16(i+1))
			must(t, unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		}

		if got := Reassembly(); got < 0.5 || got > 1.1 {
			t.Errorf("with half of what fits and more: got %v, want 0.5 to 1.1", got)
		}

		for end := time.Now().Add(20 * time.Second); Reassembly() > 0; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("got %v after 20 s, want 0: all have timed out", Reassembly())
				return
			}
		}
	})
}
