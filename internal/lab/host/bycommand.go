package host

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"strings"
)

// ByCommand returns a Host for a machine that only executes commands. start starts a command there. The Host
// reads files with cat and writes them with a shell. If a file is missing or inaccessible, the error wraps
// fs.ErrNotExist or fs.ErrPermission.
func ByCommand(name string, start func(ctx context.Context, c Command) (Process, error)) Host {
	return commanded{name, start}
}

type commanded struct {
	name  string
	start func(ctx context.Context, c Command) (Process, error)
}

func (h commanded) Name() string { return h.name }

func (h commanded) ReadFile(ctx context.Context, path string) ([]byte, error) {
	b, err := Run(ctx, h, Command{Path: "cat", Args: []string{path}})
	return b, fileError("open", path, err)
}

func (h commanded) WriteFile(ctx context.Context, path string, data []byte) error {
	_, err := Run(ctx, h, Command{
		Path:  "sh",
		Args:  []string{"-c", `cat >"$0"`, path},
		Stdin: bytes.NewReader(data),
	})
	return fileError("write", path, err)
}

func (h commanded) Start(ctx context.Context, c Command) (Process, error) {
	if len(c.Files) > 0 {
		return nil, fmt.Errorf("start %s on %s with open files: %w", c.Path, h.name, ErrUnsupported)
	}
	return h.start(ctx, c)
}

// fileError converts the error messages "No such file" and "Permission denied" of cat and the shell to an
// fs.PathError. It returns other errors unchanged.
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

// Quote quotes a word for the POSIX shell.
func Quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// ShellWord returns word in the form in which a user can paste it into a shell. It quotes word only if
// necessary.
func ShellWord(word string) string {
	if word != "" && Plain(word, "%+,-./:=@_") {
		return word
	}
	return Quote(word)
}

// Plain reports whether text contains only ASCII letters, digits and the given other characters.
func Plain(text, others string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune(others, r))
	})
}
