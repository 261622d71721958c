package foreign

import "io"

// Detect returns the format of a file.
func Detect(from io.Reader) string {
	text, _ := Text(from)
	return detect(text)
}

// ReadFile reads a file that may be compressed.
func ReadFile(from io.Reader, format string) ([]Result, error) {
	text, err := Text(from)
	if err != nil {
		return nil, err
	}
	return Read(text, format)
}
