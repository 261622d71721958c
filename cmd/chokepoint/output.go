package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// write writes a result. The error of the write is the command's error: a full disk must not look like
// success. A reader that has left needs no words.
func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	if errors.Is(err, syscall.EPIPE) {
		return &exitError{code: codeError}
	}
	if err != nil {
		return fmt.Errorf("write result: %v", err)
	}
	return nil
}

// printJSON writes an indented document.
func printJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode result: %v", err)
	}
	return write(w, string(b)+"\n")
}

// jsonLine is a document on one line.
func jsonLine(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode result: %v", err)
	}
	return append(b, '\n'), nil
}
