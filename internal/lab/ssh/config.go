package ssh

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// ownConfig is the file name of the copy of the ssh configuration.
const ownConfig = "ssh_config"

// CopyConfig copies the ssh configuration in file to dir, so that nobody can change it after the check, and
// returns the path of the copy. It returns an error if others can change file or a file that it includes,
// because a configuration can contain commands. If file is "", CopyConfig does nothing, because ssh then uses
// the user's own configuration and checks it.
func CopyConfig(file, dir string) (string, error) {
	if file == "" {
		return "", nil
	}

	text, err := host.ReadTrusted(file)
	if err == nil {
		_, err = included(string(text), 0)
	}

	if err != nil {
		return "", fmt.Errorf("read ssh's configuration: %w", err)
	}

	name := filepath.Join(dir, ownConfig)
	return name, os.WriteFile(name, text, 0o600)
}

// runs lists the configuration keywords whose value is a command or library to run (ssh_config(5)).
var runs = [...]string{"proxycommand", "knownhostscommand", "pkcs11provider", "securitykeyprovider"}

// ConfigCommands returns the lines of a configuration, and of the files that it includes, that make ssh run
// programs.
func ConfigCommands(file string) ([]string, error) {
	text, err := host.ReadTrusted(file)
	if err != nil {
		return nil, fmt.Errorf("read ssh's configuration: %w", err)
	}

	whole, err := included(string(text), 0)
	var commands []string
	for line := range strings.Lines(whole) {
		keyword, rest := directive(line)
		exec := keyword == "match" && slices.Contains(strings.Fields(strings.ToLower(rest)), "exec")
		if (slices.Contains(runs[:], keyword) || exec) && !strings.EqualFold(rest, "none") {
			commands = append(commands, check.Plain(strings.TrimSpace(line)))
		}
	}

	return commands, err
}

// maxIncluded is the maximum nesting depth of included files, as in ssh (readconf.c, READCONF_MAX_DEPTH).
const maxIncluded = 16

// included returns a configuration followed by the files that it includes.
func included(text string, depth int) (whole string, err error) {
	if depth > maxIncluded {
		return "", fmt.Errorf("it includes others more than %d deep", maxIncluded)
	}

	whole = text + "\n"
	for line := range strings.Lines(text) {
		keyword, rest := directive(line)
		if keyword != "include" {
			continue
		}

		if strings.ContainsAny(rest, "%$\"'\\") {
			return "", check.WithHint(fmt.Errorf("it is unknown who can change what it includes: %s",
				check.Plain(strings.TrimSpace(line))), "write out the path, without quotes and variables")
		}

		for _, pattern := range strings.Fields(rest) {
			files, err := filepath.Glob(ofUser(pattern))
			if err != nil {
				return "", fmt.Errorf("it includes %s: %w", check.Plain(pattern), err)
			}

			for _, file := range files {
				text, err := host.ReadTrusted(file)
				if err != nil {
					return "", fmt.Errorf("it includes %s: %w", check.Plain(file), err)
				}

				more, err := included(string(text), depth+1)
				if err != nil {
					return "", err
				}

				whole += more
			}
		}
	}

	return whole, nil
}

// directive splits a line into its keyword in lower case and the rest of the line.
func directive(line string) (keyword, rest string) {
	line = strings.TrimSpace(line)
	i := strings.IndexAny(line, " \t=")
	if i < 0 || line[0] == '#' {
		return "", ""
	}

	rest = strings.TrimLeft(line[i:], " \t")
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
	return strings.ToLower(strings.Trim(line[:i], "\"")), rest
}

// ofUser returns the path that an Include directive refers to. It resolves the path as ssh does in a user's
// configuration.
func ofUser(pattern string) string {
	home, _ := os.UserHomeDir() // error ignored: without a home directory, ssh finds no file either
	if rest, ok := strings.CutPrefix(pattern, "~/"); ok {
		return filepath.Join(home, rest)
	}

	if filepath.IsAbs(pattern) {
		return pattern
	}

	return filepath.Join(home, ".ssh", pattern)
}
