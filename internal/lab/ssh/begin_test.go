package ssh

import (
	"io"
	"strings"
	"testing"
)

// TestAfterBegin: what a login shell says is no output of the command, however long; the rest is, with lines
// that look alike.
func TestAfterBegin(t *testing.T) {
	long := strings.Repeat("x", 9000)
	for _, tt := range []struct {
		talks     bool
		text, out string
		fails     bool
	}{
		{false, "hello\n", "hello\n", false},
		{true, "welcome\n\n" + begins + "\nhello\n" + begins + "\n", "hello\n" + begins + "\n", false},
		{true, long + "\r\n" + begins + "\r\n", "", false},
		{true, "welcome\n", "", false},
		{true, strings.Repeat(long+"\n", 40) + begins + "\nhello\n", "", true},
	} {
		c := &Connection{talks: tt.talks}
		got, err := io.ReadAll(c.own(strings.NewReader(tt.text)))
		if string(got) != tt.out || (err != nil) != tt.fails {
			t.Errorf("%.40q: got %.40q, %v, want %q", tt.text, got, err, tt.out)
		}
	}
}
