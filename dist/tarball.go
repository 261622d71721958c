package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file of a package. Its name is relative to a prefix: /usr in packages, and any directory for a
// tarball.
type file struct {
	name string
	from string // file to copy
	mode fs.FileMode
}

// tarball writes files to a tarball, in a directory with the tarball's name.
func (r *release) tarball(name string, files []file) error {
	packed := r.path(name + ".tar.gz")
	out, err := os.Create(packed)
	if err != nil {
		return err
	}

	err = errors.Join(writeTar(out, name, files, r.time), out.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", packed, err)
	}

	return r.publish(name+".tar.gz", packed)
}

// writeTar writes files to a compressed archive, below a directory: sorted, owned by root, all with the
// same time.
func writeTar(out io.Writer, folder string, files []file, at time.Time) error {
	zipped, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}

	archive := tar.NewWriter(zipped)
	byName := func(a, b file) int { return cmp.Compare(a.name, b.name) }
	for _, f := range slices.SortedFunc(slices.Values(files), byName) {
		if err := addFile(archive, folder, f, at); err != nil {
			return err
		}
	}

	if err := archive.Close(); err != nil {
		return err
	}

	return zipped.Close()
}

func addFile(archive *tar.Writer, folder string, f file, at time.Time) error {
	content, err := os.ReadFile(f.from)
	if err != nil {
		return err
	}

	err = archive.WriteHeader(&tar.Header{
		Name:    folder + "/" + f.name,
		Size:    int64(len(content)),
		Mode:    int64(f.mode),
		Uname:   "root",
		Gname:   "root",
		ModTime: at,
		Format:  tar.FormatUSTAR,
	})
	if err != nil {
		return err
	}

	_, err = archive.Write(content)
	return err
}

// publish copies a file to the output directory.
func (r *release) publish(name, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("publish %s: %w", name, err)
	}

	if err := os.WriteFile(filepath.Join(r.output, name), content, 0o644); err != nil {
		return fmt.Errorf("publish %s: %w", name, err)
	}

	r.published = append(r.published, name)
	return nil
}

// writeSums writes the checksums of all published files, in the format of sha256sum.
func (r *release) writeSums() error {
	var sums strings.Builder
	for _, name := range slices.Sorted(slices.Values(r.published)) {
		content, err := os.ReadFile(filepath.Join(r.output, name))
		if err != nil {
			return fmt.Errorf("read %s for its checksum: %w", name, err)
		}

		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
	}

	if err := os.WriteFile(r.sums(), []byte(sums.String()), 0o644); err != nil {
		return fmt.Errorf("write the checksums: %w", err)
	}

	if err := os.Remove(r.sums() + ".sig"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the signature of other checksums: %w", err)
	}

	return nil
}

// sums returns the path of the file with the checksums.
func (r *release) sums() string { return filepath.Join(r.output, "SHA256SUMS") }

// sign signs the checksums with an SSH key. The signature is a separate file beside them.
func (r *release) sign(ctx context.Context, key string) error {
	_, err := command(ctx, ".", nil, "ssh-keygen", "-q", "-Y", "sign", "-n", programName, "-f", key, r.sums())
	return err
}
