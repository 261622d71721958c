package foreign

import "io"

// Detect tells what a file looks like.
func Detect(from io.Reader) string {
	text, _ := readText(from)
	return detect(text)
}
