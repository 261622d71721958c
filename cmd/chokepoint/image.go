package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// openDisk looks at a disk image of the user's and at the files of its login.
func openDisk(i record.DiskImage) (vm.Disk, error) {
	d, err := vm.OpenDisk(i.File)
	if err != nil {
		return d, wrongImage(err)
	}
	if i.UEFI {
		if err := d.BootByUEFI(); err != nil {
			return d, err
		}
	}
	d.Login = vm.Login{Way: vm.WaySSH, User: "root"}
	if i.Login != "" {
		if d.Login, err = vm.ParseLogin(i.Login); err != nil {
			return d, &usageError{err.Error(), "--image-login is ssh, ssh:USER, serial or serial:USER"}
		}
	}
	if i.Key != "" && d.Login.Way != vm.WaySSH {
		return d, &usageError{"--image-key with a login on the serial console",
			"--image-password FILE names a file that holds a password"}
	}
	if d.Login.Key, err = readable("--image-key", i.Key); err == nil {
		d.Login.Password, err = readable("--image-password", i.Password)
	}
	return d, err
}

// readable is the whole path of a file that can be read.
func readable(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", &usageError{fmt.Sprintf("%s: %v", flag, err), "name a file that you can read"}
	}
	f.Close()
	return filepath.Abs(file)
}

// wrongImage makes an error one of the command line, with its hint.
func wrongImage(err error) error {
	u := &usageError{text: err.Error()}
	if h, ok := err.(interface{ Hint() string }); ok {
		u.hint = h.Hint()
	}
	return u
}

// foreignGuest is a guest from a disk image of the user's.
func foreignGuest(ctx context.Context, p *program, i record.DiskImage) (*vm.Guest, error) {
	d, err := openDisk(i)
	if err != nil {
		return nil, err
	}
	if err := d.Identify(); err != nil {
		return nil, err
	}
	cache := p.dirs.vmCache()
	if err := prepare(cache); err != nil {
		return nil, err
	}
	if d.Agent, err = vm.GuestProgram(ctx, "amd64", cache,
		func(text string) { p.streams.note("%s", text) }); err != nil {
		return nil, err
	}
	g := vm.NewForeignGuest(d)
	return &g, nil
}
