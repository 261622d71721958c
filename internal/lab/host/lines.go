package host

import (
	"bufio"
	"io"
)

// longestLine is the longest line in bytes that Lines hands on whole.
const longestLine = 64 << 10

// Lines hands each line of r to f, without its end, until r ends; done is closed then. A line of more than
// 64 KiB ends the reading, too.
func Lines(r io.Reader, f func(line string)) (done <-chan struct{}) {
	end := make(chan struct{})
	go func() {
		defer close(end)
		s := bufio.NewScanner(r)
		s.Buffer(make([]byte, 0, 4096), longestLine)
		for s.Scan() {
			f(s.Text())
		}
	}()
	return end
}
