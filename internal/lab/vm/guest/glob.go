package guest

import (
	"path"
	"strings"
)

// normal makes a module's name or an alias comparable: "-" and "_" are the same, except in a pattern's
// brackets, where "-" is a range (as kmod does).
func normal(text string) string {
	b := []byte(text)
	inside := false
	for i, c := range b {
		switch {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == '-' && !inside:
			b[i] = '_'
		}
	}
	return string(b)
}

// asPath makes a shell pattern of fnmatch(3) without flags one of path.Match, to which "/" is special and
// "!" negates nothing.
var asPath = strings.NewReplacer("/", "\x00", "[!", "[^")

// matches reports whether a shell pattern covers the whole of a text. One that is not well formed, such as
// an open bracket, covers nothing: the kernel's build makes none. Bytes that are no UTF-8 are not told
// apart.
func matches(pattern, text string) bool {
	ok, err := path.Match(asPath.Replace(pattern), strings.ReplaceAll(text, "/", "\x00"))
	return ok && err == nil
}
