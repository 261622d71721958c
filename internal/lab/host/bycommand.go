package host

import (
	"bytes"
	"context"
	"io/fs"
	"strings"
)

// ReadByCommand reads a file of a machine that takes commands alone, by cat. A file that is not there, or
// that may not be read, is an error of package fs.
func ReadByCommand(ctx context.Context, h Host, path string) ([]byte, error) {
	b, err := Run(ctx, h, Command{Path: "cat", Args: []string{path}})
	return b, fileError("open", path, err)
}

// WriteByCommand writes such a file.
func WriteByCommand(ctx context.Context, h Host, path string, data []byte) error {
	_, err := Run(ctx, h, Command{
		Path:  "sh",
		Args:  []string{"-c", `cat >"$0"`, path},
		Stdin: bytes.NewReader(data),
	})
	return fileError("write", path, err)
}

// fileError knows what cat and a shell say of a file that is not there, or that may not be touched.
func fileError(op, path string, err error) error {
	if err == nil {
		return nil
	}

	switch text := strings.ToLower(err.Error()); {
	case strings.Contains(text, "no such file") || strings.Contains(text, "nonexistent"):
		err = fs.ErrNotExist
	case strings.Contains(text, "permission denied"):
		err = fs.ErrPermission
	default:
		return err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Quote is a word of a command line as the POSIX shell reads it.
func Quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// ShellWord is a word of a command line to be pasted: quoted where a shell would read it as anything else.
func ShellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("%+,-./:=@_", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return Quote(word)
}
