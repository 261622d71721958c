package bed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
)

// version describes a version that a trigger found.
type version struct {
	id   string // identifies the content of the version
	name string // name of the version, as the lab installs it
	file string // path of the image, or ""
}

// versionForm matches the names of versions that a trigger may pass to a plan, to web pages, and to the
// command that installs the version. A name that it matches cannot be mistaken for an option.
var versionForm = check.Pattern(`^[A-Za-z0-9][A-Za-z0-9._+~-]{0,59}$`)

// trigger checks for new versions, and remembers its last result.
type trigger struct {
	plan.BedTrigger
	images string // directory for downloaded images

	last    fs.FileInfo // newest file in the directory at the last check
	etag    string
	changed string  // Last-Modified header of the last download
	found   version // version that the last check found
}

const (
	lookTime = 10 * time.Minute // time limit of one check
	maxImage = 4 << 30          // bytes
	keepFree = 1 << 30          // bytes that a download leaves free on its file system
)

// check returns the newest version, or the zero version if there is none yet.
func (t *trigger) check(ctx context.Context) (v version, err error) {
	ctx, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	switch t.Kind() {
	case "directory":
		v, err = t.directory()
	case "url":
		v, err = t.download(ctx)
	case "git":
		v, err = t.remote(ctx)
	default:
		v, err = t.ask(ctx)
	}

	if err != nil {
		return version{}, fmt.Errorf("trigger %s: %w", t.Name, err)
	}

	if v.name != "" && !versionForm().MatchString(v.name) {
		return version{}, fmt.Errorf("trigger %s: %q cannot be the name of a version: up to 60 letters, "+
			"digits, dots, plus signs, tildes, dashes and underscores", t.Name, check.Plain(v.name))
	}

	return v, nil
}

// directory returns the newest file in the directory, as soon as two successive checks have found it with the
// same size and time.
func (t *trigger) directory() (v version, err error) {
	if err := ownDir(t.Directory); err != nil {
		return v, err
	}

	entries, err := os.ReadDir(t.Directory)
	if err != nil {
		return v, err
	}

	var newest fs.FileInfo
	for _, e := range entries {
		fits, _ := path.Match(cmp.Or(t.Match, "*"), e.Name()) // Match was checked with the bed file
		if !fits || !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}

		info, err := e.Info()
		if err == nil && (newest == nil || info.ModTime().After(newest.ModTime())) {
			newest = info
		}
	}

	before := t.last
	t.last = newest
	if newest == nil || before == nil || !same(before, newest) {
		return t.found, nil
	}

	file := filepath.Join(t.Directory, newest.Name())
	if t.found.file == file && strings.HasSuffix(t.found.id, stamp(newest)) {
		return t.found, nil
	}

	if newest.Size() > maxImage {
		return v, fmt.Errorf("%s is larger than %d bytes", file, int64(maxImage))
	}

	f, err := host.OpenTrusted(file)
	if err != nil {
		return v, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxImage)); err != nil {
		return v, err
	}

	t.found = version{fmt.Sprintf("%x %s", h.Sum(nil), stamp(newest)), newest.Name(), file}
	return t.found, nil
}

// ownDir returns an error if other users can write to dir. The sticky bit makes no difference.
func ownDir(dir string) error {
	if err := host.TrustedDir(dir); err != nil {
		return err
	}

	info, err := os.Stat(dir)
	if err == nil && info.Mode()&fs.ModeSticky != 0 && info.Mode().Perm()&0o022 != 0 {
		err = app.Hinted("chmod go-w it", "others can write to %s", dir)
	}
	return err
}

func same(a, b fs.FileInfo) bool { return a.Name() == b.Name() && stamp(a) == stamp(b) }

func stamp(i fs.FileInfo) string { return fmt.Sprint(i.Size(), " ", i.ModTime().UnixNano()) }

// errPrivate means that a URL leads to a private address, which is not permitted.
var errPrivate = errors.New("it is at a private address; allow_private: true permits that")

// public returns an error for private addresses, and for addresses that may lead to private ones. The dialer
// calls public with the address to which it is about to connect, so earlier answers of a name server do not
// matter.
func public(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}

	ip := at.Addr().Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() ||
		slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return errPrivate
	}
	return nil
}

// special lists further networks whose addresses are local or may lead to local addresses (RFC 6890).
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("fec0::/10"),
}

// client returns the HTTP client of a trigger. It follows redirects only to the same scheme and host.
func (t *trigger) client() *http.Client {
	dialer := net.Dialer{Timeout: time.Minute}
	if !t.AllowPrivate {
		dialer.Control = public
	}

	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    time.Minute,
			ResponseHeaderTimeout:  time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
		},
		CheckRedirect: func(q *http.Request, via []*http.Request) error {
			if len(via) >= 5 || q.URL.Host != via[0].URL.Host || q.URL.Scheme != via[0].URL.Scheme {
				return errors.New("it redirects to another host, or too often")
			}
			return nil
		},
	}
}

// download stores the image at the URL, if it is new.
func (t *trigger) download(ctx context.Context) (v version, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		return v, errors.New("the URL is wrong")
	}

	if t.etag != "" {
		q.Header.Set("If-None-Match", t.etag)
	} else if t.changed != "" {
		q.Header.Set("If-Modified-Since", t.changed)
	}

	client := t.client()
	defer client.CloseIdleConnections()
	answer, err := send(client, q)
	if err != nil {
		return v, fmt.Errorf("get from %s: %w", q.URL.Host, err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNotModified:
		return t.found, nil
	case answer.StatusCode != http.StatusOK:
		return v, fmt.Errorf("%s answers %s", q.URL.Host, answer.Status)
	}

	if v, err = t.keep(answer.Body, path.Base(q.URL.Path)); err == nil {
		t.found, t.etag, t.changed = v, answer.Header.Get("ETag"), answer.Header.Get("Last-Modified")
	}
	return v, err
}

// keep stores an image in a file whose name contains the image's hash.
func (t *trigger) keep(from io.Reader, base string) (v version, err error) {
	if err := os.MkdirAll(t.images, 0o700); err != nil {
		return v, err
	}

	if err := t.removeHalf(); err != nil {
		return v, err
	}

	limit, err := room(t.images)
	if err != nil {
		return v, err
	}

	f, err := os.CreateTemp(t.images, ".download-*")
	if err != nil {
		return v, err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if gone := os.Remove(f.Name()); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(from, limit+1))
	switch {
	case err != nil:
		return v, fmt.Errorf("download: %w", err)
	case n > limit && limit < maxImage:
		return v, fmt.Errorf("download: it would leave less than %d bytes free in %s", int64(keepFree),
			t.images)
	case n > limit:
		return v, fmt.Errorf("download: it is larger than %d bytes", int64(maxImage))
	}

	sum := fmt.Sprintf("%x", h.Sum(nil))
	v = version{id: sum, name: imageName(t.Name, sum, base)}
	v.file = filepath.Join(t.images, v.name)
	if err := f.Sync(); err != nil {
		return v, err
	}
	return v, os.Rename(f.Name(), v.file)
}

// imageName returns the name of an image. It consists of the trigger's name, the beginning of the hash, and
// the extension of base.
func imageName(trigger, sum, base string) string {
	extension := path.Ext(base)
	if !versionForm().MatchString("x" + extension) {
		extension = ""
	}
	return trigger + "-" + sum[:12] + extension
}

// removeHalf removes the file that a killed download left behind.
func (t *trigger) removeHalf() error {
	left, err := filepath.Glob(filepath.Join(t.images, ".download-*"))
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// room returns the maximum size of a new image in dir, in bytes.
func room(dir string) (int64, error) {
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil {
		return 0, fmt.Errorf("read the free space of %s: %w", dir, err)
	}

	free := int64(system.Bavail) * int64(system.Bsize)
	return max(0, min(maxImage, free-keepFree)), nil
}

// remote returns the current commit of a ref in a git repository.
func (t *trigger) remote(ctx context.Context) (v version, err error) {
	out, err := host.Run(ctx, host.Local(), host.Command{
		Path: "git",
		Args: []string{"-c", "http.followRedirects=false", "ls-remote", "--exit-code", "--", t.Git, t.Ref},
		Env: []string{"GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:ssh:file",
			"GIT_SSH_COMMAND=ssh -oBatchMode=yes"},
	})
	if err != nil {
		return v, err
	}

	commit, ref, _ := strings.Cut(strings.TrimSpace(string(out)), "\t")
	if ref, _, more := strings.Cut(ref, "\n"); !commitForm().MatchString(commit) || more || ref == "" {
		return v, fmt.Errorf("git ls-remote does not name one commit for %s", t.Ref)
	}

	return version{id: commit, name: commit}, nil
}

var commitForm = check.Pattern(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// ask returns the version in the first line that a command prints. If the command prints nothing, there is no
// version yet.
func (t *trigger) ask(ctx context.Context) (v version, err error) {
	if err := host.TrustedCommand(t.Command); err != nil {
		return v, err
	}

	out, err := host.Run(ctx, host.Local(), host.Command{Path: t.Command[0], Args: t.Command[1:]})
	if err != nil {
		return v, err
	}

	line, _, _ := strings.Cut(string(out), "\n")
	name := strings.TrimSpace(line)
	return version{id: name, name: name}, nil
}
