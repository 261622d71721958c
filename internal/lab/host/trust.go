package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// TrustedDir returns an error if another user can modify dir or a directory above it. It applies the rules of
// sshd: each directory must belong to this user or root, and no other user may have write permission. It also
// accepts a directory with the sticky bit, where other users can delete only their own files. It does not
// accept a symbolic link in such a directory. In a lab's user namespace, / seems to belong to the user ID
// that stands for all unmapped users, so TrustedDir accepts this owner, too.
func TrustedDir(dir string) error {
	_, err := lookAlong(dir, Owned)
	return err
}

// OpenTrusted opens a program or a file that contains commands. It returns an error if anyone but this user
// and root can modify or replace the file. If this user is root, the user who called sudo is accepted, too.
// The checks apply to the returned file, so the file cannot be replaced between check and use.
func OpenTrusted(file string) (*os.File, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}

	// Use O_NONBLOCK, because opening a pipe would wait for a writer.
	f, err := os.OpenFile(abs, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}

	is, err := f.Stat()
	if err == nil && !is.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", file)
	}

	var seen fs.FileInfo
	if err == nil {
		seen, err = lookAlong(abs, ownedOrCallers)
	}

	if err == nil && (seen == nil || !os.SameFile(is, seen)) {
		err = errors.New("others can change " + file)
	}

	if err == nil {
		return f, nil
	}

	if is == nil || is.Mode().IsRegular() {
		err = check.WithHint(err, "its owner must be you, and nobody else may write to it or to a directory "+
			"above it: chown, chmod go-w, or move it")
	}

	return nil, errors.Join(err, f.Close())
}

// maxTrusted is the maximum size of a file that ReadTrusted reads, in bytes.
const maxTrusted = 1 << 20

// ReadTrusted returns the contents of a file that passes the checks of OpenTrusted.
func ReadTrusted(file string) ([]byte, error) {
	b, _, err := readTrusted(file, maxTrusted)
	return b, err
}

// readTrusted also returns the mode of the file. It returns an error if the file has more than most bytes.
func readTrusted(file string, most int64) ([]byte, fs.FileMode, error) {
	f, err := OpenTrusted(file)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}

	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", file, most)
	}

	return b, info.Mode(), err
}

// TrustedCommand looks up the program words[0] in PATH and checks it as OpenTrusted does. It also checks
// every argument that is the name of a file, such as the script of an interpreter. It returns ErrUnsupported
// if the program is not installed.
func TrustedCommand(words []string) error {
	path, err := exec.LookPath(words[0])
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("start %s: %w: not installed", words[0], ErrUnsupported)
	case err != nil:
		return fmt.Errorf("start %s: %w", words[0], errors.Unwrap(err))
	}

	for _, file := range append([]string{path}, words[1:]...) {
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}

		f, err := OpenTrusted(file)
		switch {
		case err == nil:
		case file == path:
			return fmt.Errorf("start %s: %w", words[0], err)
		default:
			return fmt.Errorf("start %s with %s: %w", words[0], file, err)
		}

		f.Close()
	}

	return nil
}

// maxPassword is the maximum size of a password file, in bytes.
const maxPassword = 4 << 10

// Password returns the first line of a file. It returns an error if another user can read or modify the file.
func Password(file string) (s Secret, err error) {
	text, mode, err := readTrusted(file, maxPassword)
	line, _, _ := bytes.Cut(text, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	switch {
	case err != nil:
		return s, err
	case mode.Perm()&0o077 != 0:
		return s, check.WithHint(fmt.Errorf("others can read the password in %s, or change it", file),
			"chmod 600 it, and change the password")
	case len(line) == 0:
		return s, fmt.Errorf("%s has no first line", file)
	}

	return SecretFrom(line), nil
}

// TrustedTree returns an error if another user can modify root or anything below it. It ignores entries for
// which skip returns true.
func TrustedTree(root string, skip func(fs.DirEntry) bool) error {
	if _, err := lookAlong(root, ownedOrCallers); err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case skip(d) && d.IsDir():
			return fs.SkipDir
		case skip(d):
			return nil
		}

		if d.Type()&fs.ModeSymlink != 0 { // check the target of the link
			_, err := lookAlong(path, ownedOrCallers)
			return err
		}

		info, err := d.Info()
		if err == nil && (!ownedOrCallers(info) || openToOthers(info) && info.Mode()&fs.ModeSticky == 0) {
			err = errors.New("others can change " + path)
		}

		return err
	})
}

// lookAlong checks every element of an absolute path, and returns an error if another user can modify one.
// mine reports whether the owner of an element is acceptable. last describes the last element that exists,
// after links are resolved.
func lookAlong(path string, mine func(fs.FileInfo) bool) (last fs.FileInfo, err error) {
	shared := false // whether everyone can write to the previous element, a directory
	_, err = Walk(path, func(at string, info fs.FileInfo) error {
		mode := info.Mode()
		open := openToOthers(info)
		linked := mode&fs.ModeSymlink != 0
		sticky := mode.IsDir() && mode&fs.ModeSticky != 0
		bad := !mine(info) || linked && shared || !linked && open && !sticky
		shared = open && !linked
		if bad {
			return errors.New("others can change " + at)
		}

		if !linked {
			last = info
		}

		return nil
	})
	return last, err
}

// openToOthers reports whether the mode of a file lets other users write to it.
func openToOthers(info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	owner := info.Sys().(*syscall.Stat_t)
	return mode&0o002 != 0 || mode&0o020 != 0 && !ownGroup(owner.Uid, owner.Gid)
}

// ownGroup reports whether the given user is the only member of a group, as in distributions with user
// private groups. In this case, the number or name of the group equals that of the user, and /etc/group lists
// no other member. ownGroup does not consider groups of a directory service.
func ownGroup(uid, gid uint32) bool {
	name := ""
	if u, err := user.LookupId(strconv.Itoa(int(uid))); err == nil {
		name = u.Username
	}

	b, _ := os.ReadFile("/etc/group")
	return groupOf(string(b), name, uid, gid)
}

func groupOf(groups, user string, uid, gid uint32) bool {
	own := uid == gid
	for line := range strings.Lines(groups) {
		f := strings.Split(strings.TrimSpace(line), ":") // see group(5)
		if len(f) == 4 && f[2] == strconv.Itoa(int(gid)) {
			own = (own || f[0] == user && user != "") && (f[3] == "" || f[3] == user)
		}
	}
	return own
}

// Owned reports whether a file belongs to this user, to root, or to the owner of /.
func Owned(info fs.FileInfo) bool {
	owner := info.Sys().(*syscall.Stat_t).Uid
	return int(owner) == os.Geteuid() || owner == 0 || owner == OwnerOf("/")
}

// ownedOrCallers is like Owned. If this process runs as root through sudo, it also accepts a file that
// belongs to the user who called sudo, because that user also wrote the command line.
func ownedOrCallers(info fs.FileInfo) bool {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	return Owned(info) || err == nil && os.Geteuid() == 0 && int(info.Sys().(*syscall.Stat_t).Uid) == uid
}

// Walk calls the function see for each existing element of an absolute path, starting at the root. This
// includes symbolic links and the elements of their targets. Walk returns the path with links resolved. It
// stops at the first error.
func Walk(path string, see func(at string, info fs.FileInfo) error) (real string, err error) {
	const maxLinks = 40 // limit of the kernel
	at := "/"
	rest := strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
		}

		if name == "" || name == "." || name == ".." {
			continue
		}

		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return strings.TrimSuffix(next+"/"+strings.Join(rest, "/"), "/"), nil
		}

		if err == nil {
			err = see(next, info)
		}

		switch {
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			at = next
			continue
		}

		to, err := os.Readlink(next)
		if links++; links > maxLinks {
			err = syscall.ELOOP
		}

		if err != nil {
			return "", err
		}

		if strings.HasPrefix(next, "/proc/") && strings.Contains(to, ":[") && !exists(filepath.Join(at, to)) {
			at = next // not a path, but an open file of a process, such as pipe:[1234]
			continue
		}

		if filepath.IsAbs(to) {
			at = "/"
		}

		rest = append(strings.Split(to, "/"), rest...)
	}

	return at, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// OwnerOf returns the user ID of a file's owner, or 0 if the owner cannot be read.
func OwnerOf(path string) uint32 {
	var info syscall.Stat_t
	if syscall.Stat(path, &info) != nil {
		return 0
	}
	return info.Uid
}
