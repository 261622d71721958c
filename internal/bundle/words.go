package bundle

import (
	"slices"
	"strings"
	"unicode"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// left replaces words that must not be published.
const left = "…"

// maxSpoken is the maximum length in bytes of the published part of a caveat's text.
const maxSpoken = 400

// ownWords lists words that occur in caveats, notes of labs and cut plans, but in no declaration.
const ownWords = `shown sure sent received arrive arrives describe describes
a about above absolute after against all alone already also an and another any are as at be because
been before behind below beside between both but by can cannot cells comes content could did do does
each end ended ends enough every far few fewer for from gave generators given had has have hold
holds how if in instead interrupted into is it its itself killed lack less limited link links made
many may meant means might more most must near new no none nor not nothing now of off offered on one
only or other others out over own per ran reached read real reason reasons reactions rest routers
said same seen set since so some such than that the their them then there these they this those
through to together too took tried two under until up use used user uses using valid value values
was were what when where whether which while who whole whose will with without would yet ordinary
namespace namespaces softirq placement rps xps priority socket buffers rmem_max wmem_max bpf virtual
queues guest guests qemu kvm tcg emulated machine machines vcpu vcpus cpu cpus ssh put back driven
driver settings counters sampled second seconds linux freebsd openwrt routeros opnsense repetition
repetitions windows window budget trials trial trial's run runs resumed failed suspect unchecked
throttled drift thermal zone temperature sensor throttle short root rights cage sandbox kernel
patches code hang bear several processors boot booted image disk system amd64 arm64 arm riscv64 mips
mipsel x86_64 i386 aarch64 rate path known heat shows longer lost losing first last reported reports
repeated percent share tested tester tester's ceiling loopback direct ms us ns`

var (
	spokenNumber = check.Pattern(`^[+−-]?[0-9]{1,7}([.,][0-9]{1,6})*` +
		`(%|°C|[munµ]?s|min|h|[kKMGT]?(i?B|Hz|bit/s|pps|W)?)?$`)
	spokenParts = check.Pattern(`[-/·:=@_…]`)
)

// vocabulary returns the words of this program's declarations, in lower case.
func vocabulary(c *factor.Catalogue) map[string]bool {
	words := map[string]bool{}
	add := func(texts ...string) {
		for _, text := range texts {
			for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
				return !unicode.IsLetter(r) && r != '\'' && !unicode.IsDigit(r)
			}) {
				words[w] = true
			}
		}
	}
	add(strings.ReplaceAll(ownWords, "_", " "))
	for _, k := range evidence.Kinds() {
		add(k.Name, k.Means, k.Do)
	}

	for _, m := range metrics.Metrics() {
		add(m.Name, m.Label, m.Doc)
	}

	for _, r := range diagnosis.Rules() {
		add(r.Class, r.Label, r.Means)
	}

	if c != nil {
		for _, f := range c.Factors {
			add(f.Name, f.Doc)
			add(f.Levels...)
		}
	}

	return words
}

// spoken returns the publishable words of a text: numbers with units, trial names, and words of the
// vocabulary. Each sequence of other words becomes one "…".
func spoken(text string, known map[string]bool) string {
	var out []string
	for word := range strings.FieldsSeq(text[:min(len(text), maxSpoken)]) {
		if !spokenWord(strings.Trim(word, `.,;:()[]{}"'!?`), known) {
			word = left
		}

		if word != left || !slices.Contains(out[max(len(out)-1, 0):], left) {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

func spokenWord(word string, known map[string]bool) bool {
	if word == "" || spokenNumber().MatchString(word) && identity(word) == "" || rowForm().MatchString(word) {
		return true
	}

	if identity(word) != "" {
		return false
	}

	for _, part := range spokenParts().Split(word, -1) {
		if part != "" && !known[strings.ToLower(part)] && !spokenNumber().MatchString(part) {
			return false
		}
	}

	return true
}
