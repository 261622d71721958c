package diagnosis

import "slices"

// SymptomsOf returns the classes that a class explains.
func SymptomsOf(class string) []string {
	r, _ := RuleOf(class)
	return classesOf(r.Explains...)
}

// classesOf returns the classes with one of the given names or traits.
func classesOf(names ...string) (out []string) {
	for _, r := range Rules() {
		if slices.ContainsFunc(names, func(name string) bool { return name == r.Class || r.Has(name) }) {
			out = append(out, r.Class)
		}
	}
	return out
}

// explainAway adds a term to each class, with the degree to which other classes explain the class.
func explainAway(all []Candidate) {
	terms := make([]Term, len(all))
	for _, j := range all {
		if len(j.Terms) == 0 || len(j.Facts) == 0 {
			continue
		}

		classes := SymptomsOf(j.Class)
		if slices.ContainsFunc(j.Facts, func(e Fact) bool { return e.Metric == guestRan }) {
			classes = append(classes, classesOf("in-guest")...)
		}

		share := met(j.Terms...)
		for i := range all {
			if share > terms[i].Met && slices.Contains(classes, all[i].Class) {
				terms[i] = contradicts(Explained, share).by(j.Facts[0])
			}
		}
	}

	for i, t := range terms {
		if len(all[i].Terms) > 0 && t.Met > 0 {
			all[i] = all[i].with(t)
		}
	}
}
