package vm

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// compressions are what may follow a module's ".ko".
var compressions = []string{"", ".gz", ".xz", ".zst"}

// readCompressed reads a file, unpacked according to its name. Guests get their modules unpacked, because
// not every kernel can do it by itself.
func readCompressed(ctx context.Context, name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(name) {
	case ".gz":
		b, err = gunzip(b)
	case ".zst":
		b, err = unzstd(b)
	case ".xz":
		b, err = unxz(ctx, b)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	return b, nil
}

func gunzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func unzstd(b []byte) ([]byte, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.DecodeAll(b, nil)
}

func unxz(ctx context.Context, b []byte) ([]byte, error) {
	out, err := host.Run(ctx, host.Local(), host.Command{Path: "xz", Args: []string{"-dc"},
		Stdin: bytes.NewReader(b)})
	if errors.Is(err, host.ErrUnsupported) {
		return nil, &hinted{err, "install xz (package xz-utils), or give modules that are not compressed"}
	}
	return out, err
}
