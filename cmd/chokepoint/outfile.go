package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// outFile is a result on its way into a file. It is written beside the file
// and takes its place when it is whole, so that a failure leaves the old one
// as it was. Opening it is the test of whether the place can be written to,
// before any work is done.
type outFile struct {
	path  string
	f     *os.File
	aside bool // f is a file of its own, to be renamed
}

// createOutFile opens path for a result. What is no regular file, such as
// /dev/stdout or a pipe, is written to directly.
func createOutFile(path string) (*outFile, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, &hinted{fmt.Errorf("write %s: it is a directory", path), "name a file in it"}
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("write %s: %v", path, underlying(err))
		}
		return &outFile{path: path, f: f}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("write %s: %v", path, underlying(err))
	}
	// A link is followed, so that what it points to is replaced.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".chokepoint-*")
	if err != nil {
		return nil, fmt.Errorf("write %s: %v", path, underlying(err))
	}
	return &outFile{path: path, f: f, aside: true}, nil
}

// commit writes the content and puts the file in its place.
func (o *outFile) commit(content []byte) error {
	_, err := o.f.Write(content)
	if err == nil && o.aside {
		// CreateTemp makes files that only their owner reads; a report is
		// there to be shown.
		err = o.f.Chmod(0o644)
	}
	if err = errors.Join(err, o.f.Close()); err == nil && o.aside {
		err = os.Rename(o.f.Name(), o.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %v", o.path, underlying(err)), o.remove())
	}
	o.f = nil
	return nil
}

// abort leaves everything as it was. After commit it does nothing.
func (o *outFile) abort() error {
	if o.f == nil {
		return nil
	}
	err := o.f.Close()
	return errors.Join(err, o.remove())
}

func (o *outFile) remove() error {
	name := o.f.Name()
	o.f = nil
	if !o.aside {
		return nil
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove unfinished %s: %v", name, underlying(err))
	}
	return nil
}
