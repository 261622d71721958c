package guest

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

// matches reports whether a shell pattern (fnmatch(3) without flags: "*", "?", "[…]", "\") covers the whole
// of a text. A bracket that is not closed stands for itself. Time is bounded by the product of the lengths.
func matches(pattern, text string) bool {
	p, t := 0, 0
	star, from := -1, 0 // the last "*", and the text that it does not cover yet
	for t < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, t
			p++
			continue
		}
		if n := one(pattern[p:], text[t]); n > 0 {
			p += n
			t++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		p, t = star+1, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// one returns the length of the pattern's first element if that matches c, otherwise 0.
func one(pattern string, c byte) int {
	if pattern == "" {
		return 0
	}
	switch pattern[0] {
	case '?':
		return 1
	case '[':
		if n, in := bracket(pattern, c); n > 0 {
			if in {
				return n
			}
			return 0
		}
	case '\\':
		if len(pattern) > 1 {
			if pattern[1] == c {
				return 2
			}
			return 0
		}
	}
	if pattern[0] == c {
		return 1
	}
	return 0
}

// bracket judges c by a bracket expression and tells its length, which is 0 if it is not closed. A "]" that
// comes first stands for itself.
func bracket(pattern string, c byte) (length int, in bool) {
	i, not := 1, false
	if i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^') {
		not = true
		i++
	}
	for first := true; i < len(pattern); first = false {
		low := pattern[i]
		if low == ']' && !first {
			return i + 1, in != not
		}
		i++
		high := low
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			high = pattern[i+1]
			i += 2
		}
		if low <= c && c <= high {
			in = true
		}
	}
	return 0, false
}
