package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// Commit is a commit of a git repository.
type Commit struct{ Hash, Subject string }

// Name returns the first twelve digits of the commit's hash, and its subject.
func (c Commit) Name() string {
	return strings.TrimSpace(short(c.Hash) + " " + c.Subject)
}

// Builds builds commits of a repository. It works in a clone, so that the repository is not modified.
type Builds struct {
	Repository string
	Command    string // command for sh that builds the checked-out commit
	Dir        string // directory of the clone and of the built files
	Line       func(line string)
}

// Exit codes of a build command, with the same meaning as for git bisect run: exitSkip means that the commit
// cannot be tested, and codes of at least exitAbort end the bisection.
const (
	exitSkip  = 125
	exitAbort = 128
)

// Commits returns the commits from good to bad, both included, oldest first. It follows the first parent of
// each merge. It returns an ErrUsage if a revision does not exist, or if good does not precede bad on this
// line.
func (b Builds) Commits(ctx context.Context, good, bad string) ([]Commit, error) {
	var hashes []string
	for _, revision := range []string{good, bad} {
		out, err := b.git(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
		if err != nil {
			return nil, Usage("git -C "+b.Repository+" log shows them", "%s names no commit of %s: %v",
				revision, b.Repository, err)
		}

		hashes = append(hashes, strings.TrimSpace(out))
	}

	if hashes[0] == hashes[1] {
		return nil, Usage("name two commits", "--good %s and --bad %s are the same commit", good, bad)
	}

	out, err := b.git(ctx, "log", "--reverse", "--first-parent", "--format=%H %s", hashes[0]+".."+hashes[1])
	if err != nil {
		return nil, Mark(ErrUsage, err)
	}

	subject, err := b.git(ctx, "log", "-1", "--format=%s", hashes[0])
	if err != nil {
		return nil, Mark(ErrUsage, err)
	}

	all := []Commit{{hashes[0], check.Plain(strings.TrimSpace(subject))}}
	for line := range strings.Lines(out) {
		hash, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, Commit{hash, check.Plain(subject)})
	}

	parent := ""
	if len(all) > 1 {
		if parent, err = b.git(ctx, "rev-parse", all[1].Hash+"^"); err != nil {
			return nil, Mark(ErrUsage, err)
		}
	}

	if strings.TrimSpace(parent) != hashes[0] {
		return nil, Usage("name a commit on the line of first parents that leads to "+bad,
			"--good %s is not on the line of first parents of --bad %s", good, bad)
	}

	return all, nil
}

// ownRepository is a line for sh that unsets GIT_DIR and similar variables. Git hooks and other programs set
// them, and git would use them instead of the repository in its directory.
const ownRepository = "unset $(git rev-parse --local-env-vars)\n"

// git runs git in the repository, without hooks.
func (b Builds) git(ctx context.Context, args ...string) (string, error) {
	script := ownRepository + `exec git -c core.hooksPath=/dev/null "$@"`
	out, err := host.Run(ctx, host.Local(), host.Command{
		Path: "sh",
		Args: append([]string{"-c", script, "git", "-C", b.Repository}, args...),
	})
	return string(out), err
}

// checkout checks out a commit in the clone. It creates the clone if it is missing.
func (b Builds) checkout(ctx context.Context, hash, source string) error {
	if !userfile.Exists(source) {
		of, err := b.git(ctx, "rev-parse", "--git-common-dir")
		if err != nil {
			return err
		}

		part := source + ".part"
		if err := os.RemoveAll(part); err != nil {
			return err
		}

		_, err = b.git(ctx, "clone", "--quiet", "--shared", "--no-checkout", "--template=",
			strings.TrimSuffix(of, "\n"), part)
		if err != nil {
			return err
		}

		if err := os.Rename(part, source); err != nil {
			return err
		}
	}

	// With --git-dir, git does not search the parent directories for a repository if the clone is damaged.
	_, err := b.git(ctx, "--git-dir="+filepath.Join(source, ".git"), "--work-tree="+source,
		"checkout", "--quiet", "--force", "--detach", hash)
	return err
}

// Build returns the file that the build command makes from a commit. If the file does not exist, Build runs
// the command in a checkout of the commit. Three environment variables tell the command what to do:
// CHOKEPOINT_COMMIT is the hash of the commit, CHOKEPOINT_OUTPUT is the file to make, and CHOKEPOINT_MODULES
// is the directory for the modules of a kernel.
//
// If the command fails with an exit code below 128, the error is an ErrUnusable, and the build is never
// repeated.
func (b Builds) Build(ctx context.Context, c Commit) (string, error) {
	built := filepath.Join(b.Dir, c.Hash)
	if userfile.Exists(built) {
		return built, nil
	}

	failed := built + ".failed" // holds the reason
	if why, err := os.ReadFile(failed); err == nil {
		return "", Mark(ErrUnusable, errors.New(string(why)))
	}

	if err := Prepare(b.Dir); err != nil {
		return "", err
	}

	source := filepath.Join(b.Dir, "source")
	err := b.checkout(ctx, c.Hash, source)
	if err != nil && ctx.Err() == nil { // use a new clone, because an interrupted checkout leaves a lock
		if err = os.RemoveAll(source); err == nil {
			err = b.checkout(ctx, c.Hash, source)
		}
	}

	if err != nil {
		return "", err
	}

	part, modules := built+".part", b.Modules(c)
	if err := errors.Join(os.RemoveAll(part), os.RemoveAll(modules)); err != nil {
		return "", err
	}

	p, err := host.Local().Start(ctx, host.Command{
		Path: "sh",
		Args: []string{"-c", ownRepository + "exec 2>&1\n" + b.Command},
		Env: []string{"CHOKEPOINT_COMMIT=" + c.Hash, "CHOKEPOINT_OUTPUT=" + part,
			"CHOKEPOINT_MODULES=" + modules},
		Dir: source,
	})
	if err != nil {
		return "", err
	}

	<-host.Lines(p.Stdout(), func(line string) { b.Line(check.Plain(line)) })
	_, err = p.Wait()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}

	if code, exited := host.ExitCode(err); exited && code < exitAbort && code != 0 {
		why := fmt.Sprintf("its build exits with %d", code)
		if code == exitSkip {
			why = "its build skips it"
		}
		if err := os.WriteFile(failed, []byte(why), 0o600); err != nil {
			return "", err
		}
		return "", Mark(ErrUnusable, errors.New(why))
	}

	if err != nil {
		return "", fmt.Errorf("build %s: %w", c.Name(), err)
	}

	if err := os.Rename(part, built); err != nil {
		return "", Hinted("the command must write the image or kernel to $CHOKEPOINT_OUTPUT",
			"build %s: it left no file: %v", c.Name(), check.Underlying(err))
	}

	return built, nil
}

// Modules returns the directory for the modules of a commit's kernel. The directory might not exist.
func (b Builds) Modules(c Commit) string { return filepath.Join(b.Dir, c.Hash+".modules") }

// Clear removes the clone and the built files.
func (b Builds) Clear() error { return os.RemoveAll(b.Dir) }

// BuildsDir returns the directory that holds the builds of a bisection until the bisection ends.
func (d Dirs) BuildsDir(id string) string { return filepath.Join(d.Cache, "bisect", id) }
