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

	"github.com/chokepoint-lab/chokepoint/internal/check"
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
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			b, err = io.ReadAll(z)
		}
	case ".zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)); err == nil {
			b, err = z.DecodeAll(b, nil)
			z.Close()
		}
	case ".xz":
		b, err = host.Run(ctx, host.Local(), host.Command{Path: "xz", Args: []string{"-dc"},
			Stdin: bytes.NewReader(b)})
		if errors.Is(err, host.ErrUnsupported) {
			err = check.WithHint(err,
				"install xz (package xz-utils), or give modules that are not compressed")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	return b, nil
}
