package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// completions returns, by shell, the directory in which it looks for completions.
func completions() map[string]string {
	return map[string]string{
		"bash": "share/bash-completion/completions/chokepoint",
		"fish": "share/fish/vendor_completions.d/chokepoint.fish",
		"zsh":  "share/zsh/site-functions/_chokepoint",
	}
}

// writePages generates the manual pages and completions with the program.
func (r *release) writePages(ctx context.Context) error {
	dir := r.path("man1")
	if _, err := r.ask(ctx, "man", "--output", dir); err != nil {
		return err
	}

	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return fmt.Errorf("list the manual pages: %w", err)
	}

	for _, page := range pages {
		if err := compress(page); err != nil {
			return fmt.Errorf("compress a manual page: %w", err)
		}

		name := "share/man/man1/" + filepath.Base(page) + ".gz"
		r.pages = append(r.pages, file{name, page + ".gz", 0o644})
	}

	for shell, name := range completions() {
		text, err := r.ask(ctx, "completion", shell)
		if err != nil {
			return err
		}

		if err := os.WriteFile(r.path("completion."+shell), text, 0o644); err != nil {
			return fmt.Errorf("write the completion for %s: %w", shell, err)
		}

		r.pages = append(r.pages, file{name, r.path("completion." + shell), 0o644})
	}

	return nil
}

// ask runs the program for this machine with a home directory of its own.
func (r *release) ask(ctx context.Context, args ...string) ([]byte, error) {
	home := r.path("home")
	return command(ctx, r.work, []string{"HOME=" + home, "XDG_DATA_HOME=", "XDG_STATE_HOME=",
		"XDG_CONFIG_HOME=", "XDG_CACHE_HOME=", "XDG_RUNTIME_DIR="}, r.host.path, args...)
}

// compress writes a gzipped copy of a file to the same name with .gz.
func compress(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}

	if _, err := w.Write(text); err != nil {
		return err
	}

	if err := w.Close(); err != nil {
		return err
	}

	return os.WriteFile(path+".gz", packed.Bytes(), 0o644)
}
