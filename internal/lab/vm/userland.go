package vm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// program lists files to include in the image. Most are tools for users. chokepoint itself runs openssl,
// openvpn, pppd and softflowd.
type program struct {
	Packages []string // alternatives, of which the first available one is used
	Files    []string // names of programs, or patterns that contain a slash for other files
}

// programs lists the programs in the image. The shell is dash, because the shell of Debian's busybox prefers
// its own applet ip. busybox provides only a few applets.
var programs = []program{
	packaged("dash", "dash"),
	packaged("busybox busybox-static", "busybox"),
	packaged("iproute2", "ip tc ss bridge nstat usr/lib/tc/*.dist"),
	packaged("nftables", "nft"),
	packaged("ethtool", "ethtool"),
	packaged("conntrack", "conntrack"),
	packaged("tcpdump", "tcpdump"),
	packaged("wireguard-tools", "wg"),
	packaged("iperf3", "iperf3"),
	packaged("openssl", "openssl"),
	packaged("openvpn", "openvpn"),
	packaged("ppp", "pppd usr/lib/pppd/*/pppoe.so"),
	packaged("softflowd", "softflowd softflowctl"),
	packaged("netbase", "etc/protocols etc/services etc/ethertypes"),
}

// packaged returns a program, given its packages and files.
func packaged(packages, files string) program {
	return program{strings.Fields(packages), strings.Fields(files)}
}

// applets lists the links to busybox. A link is created unless another program has its name. The list omits
// two kinds of applets: those that run other programs by name, because they would prefer applets to programs,
// and those that shut down the machine without its init.
var applets = strings.Fields(`
	awk basename cat chmod clear cp cut date dd df diff dmesg du echo env expr false find free grep gunzip
	gzip head hexdump hostname id kill killall less ln ls lsmod md5sum mkdir mknod mktemp more mount mv nc
	netstat nslookup od ping ping6 printf ps pwd readlink rm rmdir rmmod sed seq sha256sum sleep sort stat
	strings stty sync sysctl tail tar tee test top touch tr traceroute true tty umount uname uniq uptime vi
	watch wc wget which zcat
`)

// etcFiles contains the files in which programs look up users, groups and names.
var etcFiles = [][2]string{
	{"etc/passwd", "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"},
	{"etc/group", "root:x:0:\nnogroup:x:65534:\n"},
	{"etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"},
	{"etc/ppp/options", ""}, // creates the directory for pppd
	{"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"},
}

// unwinder is a library that no program declares. glibc opens it to unwind the stack of a cancelled thread.
const unwinder = "libgcc_s.so.1"

// root is a directory that contains unpacked packages.
type root struct {
	dir     string
	machine machine
}

// follow resolves a path relative to the root directory, and returns the real path of the file. It tries both
// /lib/x and /usr/lib/x. Packages contain one or the other, but on an installed system /lib is a link to
// /usr/lib.
func (r root) follow(p string) (string, bool) {
	for range 16 { // limits the number of links to follow
		full := ""
		info := fs.FileInfo(nil)
		for _, candidate := range []string{p, path.Join("usr", p), strings.TrimPrefix(p, "usr/")} {
			full = filepath.Join(r.dir, filepath.FromSlash(candidate))
			if i, err := os.Lstat(full); err == nil {
				info, p = i, candidate
				break
			}
		}

		switch {
		case info == nil:
			return "", false
		case info.Mode().IsRegular():
			return full, true
		case info.Mode()&fs.ModeSymlink == 0:
			return "", false
		}

		to, err := os.Readlink(full)
		if err != nil {
			return "", false
		}

		if !path.IsAbs(to) {
			to = path.Join("/", path.Dir(p), to)
		}

		p = strings.TrimPrefix(path.Clean(to), "/")
	}
	return "", false
}

// find returns the path of name in the first element of folders that contains it. Elements may be patterns.
func (r root) find(name string, folders []string) (string, bool) {
	for _, folder := range folders {
		dirs, _ := fs.Glob(os.DirFS(r.dir), folder) // error ignored: nothing matches an invalid pattern
		for _, d := range dirs {
			if full, ok := r.follow(path.Join(d, name)); ok {
				return full, true
			}
		}
	}
	return "", false
}

var (
	programFolders = strings.Fields("usr/bin bin usr/sbin sbin")
	libraryFolders = strings.Fields("usr/lib/*-linux-* lib/*-linux-* usr/lib lib usr/lib64 lib64")
)

// addUserland adds the programs and the libraries that they need. Programs are stored in /bin and libraries
// in /lib, which is the last directory that the dynamic linker searches. The other directories are links.
func (r root) addUserland(a archive) error {
	var needed []string
	for _, p := range programs {
		for _, name := range p.Files {
			if strings.Contains(name, "/") {
				if err := r.addFiles(a, name); err != nil {
					return err
				}
				continue
			}

			full, ok := r.find(name, programFolders)
			if !ok {
				continue // the package may be unavailable, which was already reported
			}

			more, err := r.addBinary(a, "bin/"+name, full)
			if err != nil {
				return err
			}

			needed = append(needed, more...)
		}
	}

	if _, ok := r.find(unwinder, libraryFolders); ok && len(needed) > 0 {
		needed = append(needed, unwinder)
	}

	for ; len(needed) > 0; needed = needed[1:] {
		name := needed[0]
		if _, ok := a["lib/"+name]; ok {
			continue
		}

		full, ok := r.find(name, libraryFolders)
		if !ok {
			return fmt.Errorf("build the image: no package has the library %s", name)
		}

		more, err := r.addBinary(a, "lib/"+name, full)
		if err != nil {
			return err
		}

		needed = append(needed, more...)
	}

	r.addApplets(a)
	return nil
}

func (r root) addApplets(a archive) {
	if _, ok := a["bin/dash"]; ok {
		a.link("bin/sh", "dash")
	}

	if _, ok := a["bin/busybox"]; !ok {
		return
	}

	for _, name := range applets {
		if _, ok := a["bin/"+name]; !ok {
			a.link("bin/"+name, "busybox")
		}
	}
}

// addBinary adds a program or library. It returns the libraries that the file needs and, for a program, its
// dynamic linker.
func (r root) addBinary(a archive, name, full string) (needed []string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read %s of a package: %w", path.Base(name), err)
		}
	}()
	data, err := os.ReadFile(full)
	if err != nil {
		return nil, err
	}

	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}

	if !r.machine.runs(f) {
		return nil, fmt.Errorf("it is for %v, not for %s", f.Machine, r.machine.arch)
	}

	a.add(name, modeProgram, data)
	if needed, err = f.ImportedLibraries(); err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, err
	}

	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz > 4096 {
			continue
		}

		linker, err := io.ReadAll(p.Open())
		if err != nil {
			return nil, err
		}

		needed = append(needed, path.Base(strings.TrimRight(string(linker), "\x00")))
	}

	return needed, nil
}

// addFiles adds the files that match a pattern, and keeps their paths.
func (r root) addFiles(a archive, pattern string) error {
	for _, p := range []string{pattern, strings.TrimPrefix(pattern, "usr/")} {
		found, err := fs.Glob(os.DirFS(r.dir), p)
		if err != nil {
			return err
		}

		for _, name := range found {
			full, ok := r.follow(name)
			if !ok {
				continue
			}

			data, err := os.ReadFile(full)
			if err != nil {
				return err
			}

			// In the image, usr/lib is a link to lib.
			dir := strings.TrimPrefix(path.Dir(name), "usr/")
			a.add(path.Join(dir, path.Base(name)), modeFile, data)
		}
	}
	return nil
}

// addSkeleton adds mount points, and links from the usual directories of programs and libraries to /bin and
// /lib.
func addSkeleton(a archive) {
	for dir := range strings.FieldsSeq("bin lib dev proc sys run tmp root etc/chokepoint usr var") {
		a.folder(dir)
	}

	for _, l := range [][2]string{
		{"sbin", "bin"}, {"lib64", "lib"}, {"usr/bin", "../bin"}, {"usr/sbin", "../bin"},
		{"usr/lib", "../lib"}, {"usr/lib64", "../lib"}, {"var/run", "../run"}, {"var/tmp", "../tmp"},
		// The kernel runs /sbin/modprobe, which is a link to init. The name tells init to act as modprobe.
		{"bin/modprobe", "../init"}, {"bin/chokepoint-agent", "../init"},
	} {
		a.link(l[0], l[1])
	}

	for _, f := range etcFiles {
		a.text(f[0], f[1])
	}
}
