package ssh

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// TestAfterBegin: what a login shell says is no output of the command, however long; the rest is, with lines
// that look alike.
func TestAfterBegin(t *testing.T) {
	long := strings.Repeat("x", 9000)
	for _, tt := range []struct {
		prints    bool
		text, out string
		fails     bool
	}{
		{false, "hello\n", "hello\n", false},
		{true, "welcome\n\n" + begins + "\nhello\n" + begins + "\n", "hello\n" + begins + "\n", false},
		{true, long + "\r\n" + begins + "\r\n", "", false},
		{true, "welcome\n", "", false},
		{true, strings.Repeat(long+"\n", 40) + begins + "\nhello\n", "", true},
	} {
		c := &Connection{prints: tt.prints}
		got, err := io.ReadAll(c.own(strings.NewReader(tt.text)))
		if string(got) != tt.out || (err != nil) != tt.fails {
			t.Errorf("%.40q: got %.40q, %v, want %q", tt.text, got, err, tt.out)
		}
	}
}

// TestListen: a login shell prints of its own if anything but hello's empty line comes before the mark, even
// if that shows nothing.
func TestListen(t *testing.T) {
	const facts = "\nchokepoint-hello\nLinux\nx86_64\n0\nnone\nconnection 192.0.2.1 50000 192.0.2.2 22\n" +
		"chokepoint-ready\n"
	for before, prints := range map[string]bool{"": false, "\n": true, "  ": true, " \n": true, "\r": true,
		"welcome\n": true} {
		c := &Connection{}
		err := c.listen(bufio.NewReader(strings.NewReader(before + facts)))
		if err != nil || c.prints != prints || c.System != "Linux" || !c.Root {
			t.Errorf("%q: got prints %v, %+v, %v, want %v", before, c.prints, c.Facts, err, prints)
		}
	}
}
