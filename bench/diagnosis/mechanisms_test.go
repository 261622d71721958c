package diagnosis_test

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

//go:embed mechanisms.yaml
var mechanismsFile []byte

// script plants something by raw tools, and takes it away again.
type script struct{ Plant, Undo string }

// mechanism plants one limit; see mechanisms.yaml.
type mechanism struct {
	Name, Class, At, Place, First string
	Accept                        []string
	AcceptPlace                   []string `yaml:"accept_place"`
	AcceptElement                 []string `yaml:"accept_element"`
	Rate                          []float64
	N, Loads                      []string
	CPUs                          int  // of the guest; 0 = both one and two
	Runs, Harmless                bool // the script goes on until undo; goodput need not fall
	script                        `yaml:",inline"`
}

// catalogue is mechanisms.yaml.
var catalogue = func() (c struct {
	Furniture  map[string]script
	Loads      map[string]levels
	Mechanisms []mechanism
}) {
	if err := yaml.Unmarshal(mechanismsFile, &c); err != nil {
		panic(err)
	}
	return c
}()

func mechanismNamed(name string) mechanism {
	return catalogue.Mechanisms[slices.IndexFunc(catalogue.Mechanisms, func(m mechanism) bool {
		return m.Name == name
	})]
}

// planting is a mechanism with drawn parameters, beside furniture, under some loads.
type planting struct {
	Mechanism string   `json:"mechanism"`
	Number    int      `json:"number"`
	CPUs      int      `json:"cpus"`
	Direction string   `json:"direction"`
	Furniture string   `json:"furniture"`
	RateMbit  float64  `json:"rate_mbit,omitempty"`
	N         string   `json:"n,omitempty"`
	Loads     []string `json:"loads"`
	Lab       string   `json:"lab,omitempty"` // "local" for namespaces; "" for a virtual router
}

// lightFurniture lists the furniture that kernels with few queueing disciplines can make.
var lightFurniture = []string{"nat", "idle-limit", "idle-tbf", "idle-htb", "second-namespace"}

// kind of lab that a planting needs.
func (p planting) kind() string { return cmp.Or(p.Lab, record.LabVM) }

// plantings are so many of each mechanism, drawn from the seed.
func plantings(each int) (out []planting) {
	lab, suffix := "", ""
	if *labKind != record.LabVM {
		lab, suffix = *labKind, "@"+*labKind
	}
	furniture := slices.DeleteFunc(slices.Sorted(maps.Keys(catalogue.Furniture)), func(name string) bool {
		return name == "none" || name == "delay" || name == "shaped" ||
			lab != "" && !slices.Contains(lightFurniture, name)
	})
	for _, m := range catalogue.Mechanisms {
		h := fnv.New64a()
		h.Write([]byte(m.Name + suffix))
		d := draw{rand.New(rand.NewPCG(*seed, h.Sum64()))}
		for i := range each {
			p := planting{Mechanism: m.Name, Number: i, Direction: d.of("up", "down"), Furniture: "none",
				Lab: lab, CPUs: cmp.Or(m.CPUs, 1+d.IntN(2))}
			if len(m.Rate) == 2 {
				p.RateMbit = math.Round(10*m.Rate[0]*math.Pow(m.Rate[1]/m.Rate[0], d.Float64())) / 10
			}
			if len(m.N) > 0 {
				p.N = d.of(m.N...)
			}
			if i%2 == 1 {
				p.Furniture = d.of(furniture...)
			}
			loads := slices.Clone(m.Loads)
			d.Shuffle(len(loads), func(a, b int) { loads[a], loads[b] = loads[b], loads[a] })
			p.Loads = loads[:min(2, len(loads))]
			if m.fits(p) {
				out = append(out, p)
			} else {
				p.Furniture = "none"
				out = append(out, p)
			}
		}
	}
	return out
}

// fits reports whether furniture and mechanism are at different places, and each load passes both.
func (m mechanism) fits(p planting) bool {
	f := catalogue.Furniture[p.Furniture]
	for _, place := range []string{"$E root", "$I root", "$E ingress", "$I ingress"} {
		if strings.Contains(f.Plant, place) && (strings.Contains(m.Plant, place) ||
			place == "$I root" && m.First != "") {
			return false
		}
	}
	// What a flowtable carries passes no rule at the forward hook.
	skipped := p.Furniture == "flowtable" && strings.Contains(m.Plant, "hook forward")
	return !skipped && !(strings.Contains(f.Plant, "ingress") && strings.Contains(m.Plant, "clsact"))
}

// vars lists the variables that a planting's scripts read at a node, as NAME=VALUE.
func (p planting) vars(node string) []string {
	out, in := "wan", "lan"
	if p.Direction == "down" {
		out, in = in, out
	}
	device := map[string]string{"client": "lan", "server": "wan"}[node]
	return []string{"E=" + out, "I=" + in, "D=" + device, "RATE=" + strconv.FormatFloat(p.RateMbit, 'f', -1,
		64), fmt.Sprintf("RATEK=%.0f", 1000*p.RateMbit), "N=" + p.N}
}

// node is the one that a mechanism names.
func (p planting) node(name string) string {
	switch near := p.Direction == "up"; {
	case name == "sender" && near, name == "receiver" && !near:
		return "client"
	case name == "sender", name == "receiver":
		return "server"
	}
	return name
}

// at is a place as the mechanism writes it: "router/$E".
func (p planting) at(place string) truth {
	node, element, _ := strings.Cut(place, "/")
	node = p.node(node)
	for _, v := range p.vars(node) {
		name, value, _ := strings.Cut(v, "=")
		element = strings.ReplaceAll(element, "$"+name, value)
	}
	return truth{Node: strings.Trim(node, "-"), Element: element}
}

// truths returns the planted limit with its place.
func (p planting) truths() []truth {
	m := mechanismNamed(p.Mechanism)
	t := p.at(m.Place)
	t.Class = m.Class
	return []truth{t}
}

// cell is a load of the planting.
func (p planting) cell(load string) levels {
	return with(maps.Clone(catalogue.Loads[load]), "direction", p.Direction, "topology", "forward")
}

// bench is a lab that is up while plantings come and go.
type bench struct {
	*recorder
	lab       string
	cpus      int
	untouched map[string]float64 // goodput by furniture and cell
	found     string             // state of the router before anything was planted
}

var labKind = flag.String("lab", record.LabVM, "kind of lab in which mechanisms are planted: vm or local")

var perMechanism = flag.Int("each", 3, "plantings of each mechanism")

// TestRecordMechanisms plants each mechanism in a virtual router and records what it does to loads; with
// -proofs it puts another class than the planted one to the test instead, and says how often that is refuted.
func TestRecordMechanisms(t *testing.T) {
	if *binary == "" || *keepDir == "" {
		t.Skip("skip: records for an hour: -binary and -keep say by what and where")
	}
	ctx, end := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer end()
	program, err := rig.NewProgram(*keepDir, *binary, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	done, err := readRecorded(filepath.Join(*keepDir, recordedFile))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{recorder: &recorder{t, program, *keepDir}}
	defer func() { b.down(context.WithoutCancel(ctx)) }()
	all := plantings(*perMechanism)
	slices.SortStableFunc(all, func(a, b planting) int {
		return cmp.Or(a.Number-b.Number, a.CPUs-b.CPUs)
	})
	file := filepath.Join(*keepDir, provenFile)
	for _, p := range all {
		known := slices.ContainsFunc(done, func(r recorded) bool {
			return strings.HasPrefix(r.ID, p.id("/"))
		})
		if *proofs > 0 {
			known = !mechanismNamed(p.Mechanism).limits() || slices.ContainsFunc(readProven(t, file),
				func(x proven) bool { return strings.HasPrefix(x.ID, p.id("/")) })
			p.Loads = p.Loads[:1]
		}
		if known || *only != "" && !in(*only, p.Mechanism) {
			continue
		}
		if err := b.record(ctx, p); ctx.Err() != nil {
			t.Fatal("interrupted; the same command goes on")
		} else if err != nil {
			t.Errorf("%s: %v", p.id(""), err)
			b.down(ctx)
		}
	}
	if *proofs > 0 {
		quoteProofs(t, readProven(t, file))
	}
}

// limits reports whether a mechanism has one limit of its own.
func (m mechanism) limits() bool {
	return !m.Harmless && !slices.Contains([]string{diagnosis.Healthy, diagnosis.Unknown, diagnosis.Unstable},
		m.Class)
}

func (p planting) id(load string) string {
	name := p.Mechanism
	if p.Lab != "" {
		name += "@" + p.Lab
	}
	return fmt.Sprintf("%s#%02d", name, p.Number) + load
}

// record measures a planting's loads before it is planted, unless that is known, and after.
func (b *bench) record(ctx context.Context, p planting) error {
	began := time.Now()
	if err := b.ready(ctx, p.CPUs); err != nil {
		return err
	}
	m := mechanismNamed(p.Mechanism)
	for _, name := range []string{p.Furniture, m.First} {
		f := catalogue.Furniture[name]
		if f.Plant == "" {
			continue
		}
		if err := b.sh(ctx, "router", p, f.Plant); err != nil {
			return fmt.Errorf("furniture %s: %w", name, err)
		}
		defer b.sh(ctx, "router", p, f.Undo)
	}
	under := func(load string) string { return fmt.Sprint(p.Furniture, m.First, p.Direction, load) }
	var batch []instance
	missing := false
	for _, load := range p.Loads {
		batch = append(batch, instance{ID: p.id("/" + load), Kind: kindRaw, Lab: p.kind(),
			Topology: "forward", Window: 1, Base: p.cell(load)})
		_, known := b.untouched[under(load)]
		missing = missing || !known
	}
	if missing && !m.Harmless && m.Class != diagnosis.Healthy {
		x, err := b.run(ctx, b.lab, "", "", batch, false)
		if err != nil {
			return err
		}
		for i, load := range p.Loads {
			_, b.untouched[under(load)], _ = x.trialsOf(batch[i].cell())
		}
	}
	undo, err := b.plant(ctx, p, m)
	if err != nil {
		return err
	}
	x, err := b.run(ctx, b.lab, "", "", batch, false)
	if err == nil && *proofs > 0 {
		err = b.prove(ctx, x, batch[0], m, b.untouched[under(p.Loads[0])])
	}
	undo()
	if err != nil || *proofs > 0 {
		return err
	}
	var out []recorded
	for i, in := range batch {
		in.Planted = &p
		r := recorded{instance: in, Run: x.ID, Truths: p.truths(), Untouched: b.untouched[under(p.Loads[i])],
			Seconds: time.Since(began).Seconds() / float64(len(batch))}
		r.Trials, r.Goodput, r.Dropped = x.trialsOf(in.cell())
		if fell := 1 - r.Goodput/r.Untouched; r.Dropped == "" && r.Untouched > 0 && !(fell > bite) {
			r.Dropped = fmt.Sprintf("it does not bite: goodput falls by %.0f %%", 100*fell)
		}
		b.t.Logf("%s: %.1f of %.1f Mbit/s %s", in.ID, r.Goodput/1e6, r.Untouched/1e6, r.Dropped)
		out = append(out, r)
	}
	return b.keep(out)
}

// ready brings up a lab whose router has so many vCPUs and is as it was made.
func (b *bench) ready(ctx context.Context, cpus int) error {
	if b.lab != "" && b.cpus == cpus {
		if state, err := b.state(ctx); err == nil && state == b.found {
			return nil
		} else {
			b.t.Logf("the lab is made anew: %v\n%s\n---\n%s", err, b.found, state)
		}
	}
	b.down(ctx)
	id, err := b.labUp(ctx, "forward", *labKind, cpus)
	if err != nil {
		return err
	}
	b.lab, b.cpus, b.untouched = id, cpus, map[string]float64{}
	b.found, err = b.state(ctx)
	return err
}

// prove puts another class to the test on what a mechanism did to a load, if it bites.
func (b *bench) prove(ctx context.Context, x aRun, of instance, m mechanism, untouched float64) error {
	_, goodput, _ := x.trialsOf(of.cell())
	if fell := 1 - goodput/untouched; !(fell > bite) {
		b.t.Logf("%s does not bite: goodput falls by %.0f %%", of.ID, 100*fell)
		return nil
	}
	p, err := b.test(ctx, x.ID, swapped(of.ID, append([]string{m.Class}, m.Accept...)...))
	if err != nil {
		return err
	}
	p.ID = of.ID
	keepProven(b.t, filepath.Join(*keepDir, provenFile), []proven{p})
	return nil
}

func (b *bench) down(ctx context.Context) {
	if b.lab == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := b.program.Say(ctx, "lab", "down", b.lab); err != nil {
		b.t.Error(err)
	}
	b.lab = ""
}

// state reads what mechanisms change: queues, filters, rules, devices, routes and buffers.
func (b *bench) state(ctx context.Context) (string, error) {
	all := ""
	for _, node := range []string{"client", "router", "server"} {
		said, err := b.program.Say(ctx, "lab", "exec", node, "--lab", b.lab, "--", "sh", "-c",
			"tc qdisc show | sed 's/qdisc \\([a-z_]*\\) [0-9a-f]*:/\\1/'; tc filter show dev lan ingress; nft list ruleset; ip -o link show | "+
				"sed -E 's/.*: ([a-z0-9]+)[:@].* (mtu [0-9]*).*/\\1 \\2/'; ip route show; "+
				"ip -o addr show scope global | awk '{ print $2, $4 }'; "+
				"cat /proc/sys/net/ipv4/tcp_rmem /proc/sys/net/ipv4/tcp_wmem 2>/dev/null")
		if err != nil {
			return "", err
		}
		all += node + ": " + said
	}
	return all, nil
}

// sh runs a script with a planting's variables.
func (b *bench) sh(ctx context.Context, node string, p planting, text string) error {
	cmd := b.command(ctx, node, p, text)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%q on %s: %w: %s", text, node, err, said)
	}
	return nil
}

func (b *bench) command(ctx context.Context, node string, p planting, text string) *exec.Cmd {
	return b.program.Command(ctx, slices.Concat([]string{"lab", "exec", node, "--lab", b.lab, "--", "env"},
		p.vars(node), []string{"sh", "-ec", text})...)
}

// plant runs a mechanism's script, and returns what takes it back.
func (b *bench) plant(ctx context.Context, p planting, m mechanism) (undo func(), err error) {
	node := p.node(m.At)
	takeBack := func() {
		if m.Undo != "" {
			if err := b.sh(ctx, node, p, m.Undo); err != nil {
				b.t.Logf("%s: undo: %v", p.id(""), err)
			}
		}
	}
	if !m.Runs {
		if err := b.sh(ctx, node, p, m.Plant); err != nil {
			takeBack()
			return nil, err
		}
		return takeBack, nil
	}
	cmd := b.command(ctx, node, p, m.Plant)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	time.Sleep(300 * time.Millisecond) // it has no sign of having begun
	return func() { stop(cmd); takeBack() }, nil
}

// holds reports whether a verdict names the planted limit, or what says the same.
func (m mechanism) holds(class string) bool {
	return class == m.Class || slices.Contains(m.Accept, class)
}

// placed reports whether a verdict is about where the limit is.
func (m mechanism) placed(p planting, d *diagnosis.Diagnosis) bool {
	c := diagnosis.Cause{Node: d.Node, Element: d.Element}
	if c.Node == "" && len(d.Causes) > 0 {
		c = d.Causes[0]
	}
	t := p.at(m.Place)
	if t.Node == "" || t.at(c) || p.Lab != "" && c.Node == record.HostNode && t.Element == "" {
		return true
	}
	for _, place := range m.AcceptPlace {
		if p.at(place).at(c) {
			return true
		}
	}
	return c.Node == t.Node && slices.ContainsFunc(m.AcceptElement, func(e string) bool {
		return p.at("router/"+e).Element == c.Element
	})
}

// disturbed reports whether what is not the lab's took so much of a core that an instance says nothing, of
// those that raw tools planted.
func (x *aRun) disturbed(r recorded) bool {
	if r.Planted == nil {
		return false
	}
	m := mechanismNamed(r.Planted.Mechanism)
	own := m.Place == "host" || r.Planted.Lab != "" && m.Runs // by the mechanism itself
	return !own && x.elsewhere(r) > mostElsewhere[true]
}

// tally counts what the rules say of mechanisms.
type tally struct {
	Top1, Top2, Place count
	Sure              count // wrong, and 80 % sure or more
}

// mechanismFigures tallies a recording in all, by class and by mechanism.
type mechanismFigures struct {
	All                 tally
	Classes, Mechanisms map[string]*tally
	Instead             map[string]map[string]int // the truth, and what else was said
	Bins                reliability
}

const (
	mechanismFile = "testdata/figures-mechanisms.json"
	leastSure     = .8
)

// add counts what is said of an instance, and returns whether that is right.
func (f *mechanismFigures) add(o outcome) bool {
	m := mechanismNamed(o.Planted.Mechanism)
	right := m.holds(o.d.Class) || o.Planted.Lab != "" && o.d.Class == diagnosis.SharedCPU &&
		m.holds(diagnosis.SoftirqAllCores) // namespaces have no cores of their own
	firstTwo := o.d.Causes[:min(2, len(o.d.Causes))]
	second := right || slices.ContainsFunc(firstTwo, func(c diagnosis.Cause) bool { return m.holds(c.Class) })
	place := o.Planted.at(m.Place).Node != "" && m.Class != diagnosis.Healthy
	placed := !place || m.placed(*o.Planted, o.d)
	for of, key := range map[*map[string]*tally]string{&f.Classes: m.Class, &f.Mechanisms: m.Name} {
		if *of == nil {
			*of = map[string]*tally{}
		}
		if (*of)[key] == nil {
			(*of)[key] = &tally{}
		}
	}
	f.Bins.add(o.d, right)
	if !right {
		if f.Instead == nil {
			f.Instead = map[string]map[string]int{}
		}
		if f.Instead[m.Class] == nil {
			f.Instead[m.Class] = map[string]int{}
		}
		f.Instead[m.Class][o.d.Class]++
	}
	for _, c := range []*tally{&f.All, f.Classes[m.Class], f.Mechanisms[m.Name]} {
		c.Top1.add(right)
		c.Top2.add(second)
		c.Sure.add(!right && o.d.Class != diagnosis.Unknown && o.d.Confidence >= leastSure)
		if place {
			c.Place.add(placed)
		}
	}
	return right && placed
}

// TestMechanisms scores the rules on what raw tools planted. A figure that is lower than the committed one is
// a failure.
func TestMechanisms(t *testing.T) {
	var f mechanismFigures
	for _, e := range examples(t) {
		o := e.outcome
		if o.Planted == nil || f.add(o) {
			continue
		}
		at := ""
		if len(o.d.Causes) > 0 {
			at = o.d.Causes[0].Node + "/" + o.d.Causes[0].Element
		}
		t.Logf("%s of run %s (%+v; %.1f of %.1f Mbit/s) is %v, said: %s %.0f %% at %s: %s", o.ID, o.Run,
			*o.Planted, o.Goodput/1e6, o.Untouched/1e6, o.Truths, o.d.Class, 100*o.d.Confidence, at, o.d.Text)
	}
	t.Logf("\n%s", f.markdown())
	if *keepDir != "" {
		return // another recording than the committed one has figures of its own
	}
	if *update {
		writeJSON(t, mechanismFile, f)
		return
	}
	before := readMechanismFigures(t)
	for _, c := range []struct {
		what      string
		now, then count
	}{{"named first", f.All.Top1, before.All.Top1}, {"named among two", f.All.Top2, before.All.Top2},
		{"placed", f.All.Place, before.All.Place},
		{"not confidently wrong", f.All.Sure.not(), before.All.Sure.not()}} {
		if c.now.Of != c.then.Of || c.now.Right < c.then.Right {
			t.Errorf("%s: %d of %d, %d of %d before", c.what, c.now.Right, c.now.Of, c.then.Right, c.then.Of)
		}
	}
}

// not counts the others.
func (c count) not() count { return count{c.Of - c.Right, c.Of} }

func readMechanismFigures(t *testing.T) (f mechanismFigures) {
	text, err := os.ReadFile(mechanismFile)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// summary is the figures of all mechanisms together.
func (f mechanismFigures) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| figure | %d mechanisms, %d instances |\n|---|---|\n", len(f.Mechanisms), f.All.Top1.Of)
	for _, row := range []struct {
		what string
		of   count
	}{{"the cause is named first", f.All.Top1}, {"it is among the first two", f.All.Top2},
		{"its place is right", f.All.Place}, {"another is named, at least 80 % sure", f.All.Sure}} {
		fmt.Fprintf(&b, "| %s | %s |\n", row.what, row.of)
	}
	return b.String()
}

// markdown is the figures as docs/diagnosis.md has them.
func (f mechanismFigures) markdown() string {
	var b strings.Builder
	b.WriteString(f.summary() + "\n" + f.Bins.markdown())
	b.WriteString("\n| class | mechanisms | named first | placed | named instead | confidently wrong |\n" +
		"|---|---|---|---|---|---|\n")
	for _, class := range slices.Sorted(maps.Keys(f.Classes)) {
		var names []string
		for _, m := range catalogue.Mechanisms {
			if c := f.Mechanisms[m.Name]; c != nil && m.Class == class {
				names = append(names, fmt.Sprintf("%s %d/%d", m.Name, c.Top1.Right, c.Top1.Of))
			}
		}
		c := f.Classes[class]
		fmt.Fprintf(&b, "| %s | %s | %d of %d | %d of %d | %s | %d |\n", class, strings.Join(names, ", "),
			c.Top1.Right, c.Top1.Of, c.Place.Right, c.Place.Of, instead(class, f.Instead[class]),
			c.Sure.Right)
	}
	return b.String()
}
