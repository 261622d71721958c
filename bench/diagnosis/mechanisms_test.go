// Package diagnosis_test measures how often a diagnosis is right. It plants limits by raw tools, as
// mechanisms.yaml lists them, in labs of the chokepoint that it is given; records what they do to loads;
// packs the trials; fits the weights of the rules to them; and scores the rules.
//
//	go -C bench test ./diagnosis -timeout 0 -run TestRecordMechanisms -binary FILE -keep DIR
//	go -C bench test ./diagnosis -run TestPack -keep DIR
//	go -C bench test ./diagnosis -run TestFit -update
//	go -C bench test ./diagnosis -run TestMechanisms -v [-keep DIR] [-update]
//	go -C bench test ./diagnosis -run TestLeaveOneOut -leave-out -update
//
// A recording that was stopped goes on where it stopped.
package diagnosis_test

import (
	"cmp"
	"context"
	_ "embed"
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
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

//go:embed mechanisms.yaml
var mechanismsFile []byte

// script plants something by raw tools, and takes it away again. One that runs goes on until then.
type script struct {
	Plant, Undo string
	Runs        bool
}

// mechanism plants one limit; see mechanisms.yaml.
type mechanism struct {
	Name, Class, At, Place, First string
	Accept                        []string
	AcceptPlace                   []string `yaml:"accept_place"`
	AcceptElement                 []string `yaml:"accept_element"`
	Rate                          []float64
	N, Loads                      []string
	CPUs                          int    // of the guest; 0 = both one and two
	Topology, Direction, Lab      string // "" = forward, either, and any
	Window                        int    // seconds; 0 = 1
	Harmless                      bool   // goodput need not fall
	script                        `yaml:",inline"`
}

// catalogue holds mechanisms.yaml.
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

// planting draws the parameters of a mechanism, beside furniture, under some loads.
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

// draw makes random parameters.
type draw struct{ *rand.Rand }

func (d draw) of(all ...string) string { return all[d.IntN(len(all))] }

// with adds levels to others.
func with(l levels, more ...string) levels {
	for i := 0; i < len(more); i += 2 {
		l[more[i]] = more[i+1]
	}
	return l
}

// plantings draws each mechanism as often, from the seed.
func plantings(each int) (out []planting) {
	lab, suffix := "", ""
	if *labKind != record.LabVM {
		lab = *labKind
		suffix = "@" + *labKind
	}

	furniture := slices.DeleteFunc(slices.Sorted(maps.Keys(catalogue.Furniture)), func(name string) bool {
		return name == "none" || name == "delay" || name == "shaped" ||
			lab != "" && !slices.Contains(lightFurniture, name)
	})
	for _, m := range catalogue.Mechanisms {
		if m.Lab != "" && m.Lab != *labKind {
			continue
		}

		h := fnv.New64a()
		h.Write([]byte(m.Name + suffix))
		d := draw{rand.New(rand.NewPCG(*seed, h.Sum64()))}
		for i := range each {
			p := planting{
				Mechanism: m.Name,
				Number:    i,
				Direction: d.of("up", "down"),
				Furniture: "none",
				Lab:       lab,
				CPUs:      cmp.Or(m.CPUs, 1+d.IntN(2)),
			}
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
			if !m.fits(p) {
				p.Furniture = "none"
			}

			p.Direction = cmp.Or(m.Direction, p.Direction)
			out = append(out, p)
		}
	}

	return out
}

// fits reports whether furniture and mechanism are at different places, and each load passes both.
func (m mechanism) fits(p planting) bool {
	if m.Topology == "to-router" {
		return false // which has one port
	}

	f := catalogue.Furniture[p.Furniture]
	for _, place := range []string{"$E root", "$I root", "$E ingress", "$I ingress"} {
		if strings.Contains(f.Plant, place) && (strings.Contains(m.Plant, place) ||
			place == "$I root" && m.First != "") {
			return false
		}
	}

	if p.Furniture == "bridge" && strings.Contains(m.Plant, "name $I") {
		return false // packets arrive through the bridge, not through its port
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

// node finds the node that a mechanism names.
func (p planting) node(name string) string {
	switch near := p.Direction == "up"; {
	case name == "sender" && near, name == "receiver" && !near:
		return "client"
	case name == "sender", name == "receiver":
		return "server"
	}
	return name
}

// at finds a place by the words of the mechanism: "router/$E".
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

// cell returns a load of the planting.
func (p planting) cell(load string) levels {
	return with(maps.Clone(catalogue.Loads[load]), "direction", p.Direction, "topology",
		mechanismNamed(p.Mechanism).topology())
}

func (m mechanism) topology() string { return cmp.Or(m.Topology, "forward") }

// bench keeps a lab up while plantings come and go.
type bench struct {
	*recorder
	lab       string
	topology  record.Topology
	cpus      int
	untouched map[string][]float64 // goodput by planting.under
	found     string               // state of the router before anything was planted
}

var labKind = flag.String("lab", record.LabVM, "kind of lab in which mechanisms are planted: vm or local")

var (
	perMechanism = flag.Int("each", 3, "plantings of each mechanism")
	firstNumber  = flag.Int("from", 0, "number of the first planting that is recorded")
)

// TestMain lets the test program play the roles of a lab.
func TestMain(m *testing.M) { os.Exit(rig.Tests(m)) }

// TestRecordMechanisms plants each mechanism in a virtual router and records what it does to loads; with
// -proofs it puts the planted class and another one to the test instead, and says how often experiments
// decide rightly. Interrupted, it goes on from there the next time.
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
	all := slices.DeleteFunc(plantings(*firstNumber+*perMechanism),
		func(p planting) bool { return p.Number < *firstNumber })
	slices.SortStableFunc(all, func(a, b planting) int {
		return cmp.Or(a.Number-b.Number, strings.Compare(mechanismNamed(a.Mechanism).topology(),
			mechanismNamed(b.Mechanism).topology()), a.CPUs-b.CPUs)
	})
	file := filepath.Join(*keepDir, provenFile)
	for _, p := range all {
		known := slices.ContainsFunc(done, func(r recorded) bool {
			return strings.HasPrefix(r.ID, p.id("/"))
		})
		if *proofs {
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

	if *proofs {
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
	m := mechanismNamed(p.Mechanism)
	if err := b.ready(ctx, m.topology(), p.CPUs); err != nil {
		return err
	}

	for _, name := range []string{p.Furniture, m.First} {
		undo, err := b.plant(ctx, p, b.topology.Routers[0], catalogue.Furniture[name])
		if err != nil {
			return fmt.Errorf("furniture %s: %w", name, err)
		}
		defer undo()
	}

	var cells []levels
	for _, load := range p.Loads {
		cells = append(cells, p.cell(load))
	}

	seconds := cmp.Or(m.Window, 1)
	if *proofs {
		if err := b.measureUntouched(ctx, p, seconds, cells); err != nil {
			return err
		}
	}

	undo, err := b.plant(ctx, p, p.node(m.At), m.script)
	if err != nil {
		return err
	}

	x, err := b.run(ctx, b.lab, seconds, cells)
	if err == nil && *proofs {
		err = b.prove(ctx, x, p, b.without(p, p.Loads[0]))
	}

	undo()
	if err != nil || *proofs {
		return err
	}

	if !m.Harmless && m.Class != diagnosis.Healthy && slices.ContainsFunc(p.Loads, func(load string) bool {
		_, goodput, why := x.trialsOf(p.cell(load))
		return why == "" && !(goodput < (1-clearly)*b.without(p, load))
	}) {
		if err := b.measureUntouched(ctx, p, seconds, cells); err != nil {
			return err
		}
	}

	var out []recorded
	for i, load := range p.Loads {
		r := recorded{
			ID:        p.id("/" + load),
			Base:      cells[i],
			Planted:   &p,
			Run:       x.ID,
			Truths:    p.truths(),
			Untouched: b.without(p, load),
			Seconds:   time.Since(began).Seconds() / float64(len(p.Loads)),
		}
		r.Trials, r.Goodput, r.Dropped = x.trialsOf(cells[i])
		fell := 1 - r.Goodput/r.Untouched
		if r.Dropped == "" && r.Untouched > 0 && !(fell > bite) {
			r.Dropped = fmt.Sprintf("it does not bite: goodput falls by %.0f %%", 100*fell)
		}

		if r.Dropped == "" && r.Goodput == 0 && m.Harmless {
			r.Dropped = "nothing arrived"
		}

		b.t.Logf("%s: %.1f of %.1f Mbit/s %s", r.ID, r.Goodput/1e6, r.Untouched/1e6, r.Dropped)
		out = append(out, r)
	}

	return b.keep(out)
}

// clearly is the share by which goodput must fall for a cause to count without a measurement beside the same
// furniture, which takes less.
const clearly = .5

// under names the conditions under which the goodput of a load is comparable.
func (p planting) under(load string) string {
	m := mechanismNamed(p.Mechanism)
	return fmt.Sprint(p.Furniture, m.First, p.Direction, m.Window, load)
}

// beside returns the planting beside other furniture; "" stands for any.
func (p planting) beside(furniture string) planting {
	p.Furniture = furniture
	return p
}

// without returns the goodput of a load without the mechanism, or 0 if it is unknown. Because single windows
// of an emulated router differ by a quarter, it is the lower of the goodput beside the same furniture and of
// the median beside any.
func (b *bench) without(p planting, load string) (goodput float64) {
	of := b.untouched[p.beside("").under(load)]
	if len(of) > 0 {
		goodput = statistics.Median(of)
	}

	for _, same := range b.untouched[p.under(load)] {
		goodput = min(goodput, same)
	}

	return goodput
}

// measureUntouched measures a planting's loads without the mechanism, unless their goodput is known.
func (b *bench) measureUntouched(ctx context.Context, p planting, seconds int, cells []levels) error {
	if !slices.ContainsFunc(p.Loads, func(load string) bool {
		return len(b.untouched[p.under(load)]) == 0
	}) {
		return nil
	}

	x, err := b.run(ctx, b.lab, seconds, cells)
	if err != nil {
		return err
	}

	for i, load := range p.Loads {
		_, goodput, _ := x.trialsOf(cells[i])
		for _, of := range []planting{p, p.beside("")} {
			b.untouched[of.under(load)] = append(b.untouched[of.under(load)], goodput)
		}
	}

	return nil
}

// ready brings up a lab whose routers have so many vCPUs and are as they were made.
func (b *bench) ready(ctx context.Context, topology string, cpus int) error {
	if *labKind != record.LabVM {
		cpus = 0
	}

	if b.lab != "" && b.cpus == cpus && b.topology.Name == topology {
		if state, err := b.state(ctx); err == nil && state == b.found {
			return nil
		} else {
			b.t.Logf("the lab is made anew: %v\n%s\n---\n%s", err, b.found, state)
		}
	}

	b.down(ctx)
	id, err := b.program.LabUp(ctx, topology, *labKind, cpus)
	if err != nil {
		return err
	}

	b.lab = id
	b.cpus = cpus
	b.untouched = map[string][]float64{}
	if b.topology, err = lab.TopologyNamed(topology); err != nil {
		return err
	}

	b.found, err = b.state(ctx)
	return err
}

// prove puts the planted class, and another one, to the test on what a mechanism did to a load, if it bites.
func (b *bench) prove(ctx context.Context, x aRun, p planting, untouched float64) error {
	id := p.id("/" + p.Loads[0])
	m := mechanismNamed(p.Mechanism)
	_, goodput, _ := x.trialsOf(p.cell(p.Loads[0]))
	fell := 1 - goodput/untouched
	if !(fell > bite) {
		b.t.Logf("%s does not bite: goodput falls by %.0f %%", id, 100*fell)
		return nil
	}

	wrong := swapped(id, append([]string{m.Class}, m.Accept...)...)
	for _, class := range []string{m.Class, wrong} {
		if class == m.Class && *wrongOnly {
			continue
		}

		found, err := b.test(ctx, x.ID, class)
		if err != nil {
			return err
		}

		found.ID = id
		found.Right = class == m.Class
		keepProven(b.t, filepath.Join(*keepDir, provenFile), found)
	}

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
	for _, n := range b.topology.Nodes {
		node := n.Name
		said, err := b.program.Say(ctx, "lab", "exec", node, "--attach", b.lab, "--", "sh", "-c",
			"tc qdisc show | sed 's/qdisc \\([a-z_]*\\) [0-9a-f]*:/\\1/'; tc filter show dev lan ingress; nft list ruleset; ip -o link show | "+
				"sed -E 's/.*: ([a-z0-9]+)[:@].* (mtu [0-9]*).*/\\1 \\2/' | "+
				"grep -vE '^(ifb[01]|gre0|gretap0|erspan0) '; ip route show; "+
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
	return b.program.Command(ctx, slices.Concat([]string{"lab", "exec", node, "--attach", b.lab, "--", "env"},
		p.vars(node), []string{"sh", "-ec", text})...)
}

// plant runs a script at a node, and returns what takes it back.
func (b *bench) plant(ctx context.Context, p planting, node string, x script) (undo func(), err error) {
	takeBack := func() {
		if x.Undo != "" {
			if err := b.sh(ctx, node, p, x.Undo); err != nil {
				b.t.Logf("%s: undo: %v", p.id(""), err)
			}
		}
	}
	switch {
	case x.Runs:
		cmd := b.command(ctx, node, p, x.Plant)
		if err := cmd.Start(); err != nil {
			return nil, err
		}

		time.Sleep(300 * time.Millisecond) // it has no sign of having begun
		return func() { stop(cmd); takeBack() }, nil
	case x.Plant != "":
		if err := b.sh(ctx, node, p, x.Plant); err != nil {
			takeBack()
			return nil, err
		}
	}
	return takeBack, nil
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
	return !own && x.elsewhere(r) > maxElsewhere
}

// TestMechanismsAreSound: every load of a mechanism is a cell that plans can have, every class has a rule,
// and names are of one mechanism each.
func TestMechanismsAreSound(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range catalogue.Mechanisms {
		if seen[m.Name] {
			t.Errorf("two mechanisms have the name %s", m.Name)
		}

		seen[m.Name] = true
		if _, known := diagnosis.RuleOf(m.Class); !known && m.Class != diagnosis.Unknown {
			t.Errorf("%s: there is no rule %s", m.Name, m.Class)
		}

		for _, load := range m.Loads {
			p := planting{Mechanism: m.Name, Direction: record.Up}
			if _, err := p.cell(load).key(); err != nil {
				t.Errorf("%s: load %s: %v", m.Name, load, err)
			}
		}
	}
}

// TestPlantingsAreDrawn: the same seed draws the same, another one something else.
func TestPlantingsAreDrawn(t *testing.T) {
	all := plantings(2)
	again := plantings(2)
	if !reflect.DeepEqual(again, all) {
		t.Error("the same seed draws otherwise the second time")
	}

	*seed++
	defer func() { *seed-- }()
	other := plantings(2)
	if reflect.DeepEqual(other, all) {
		t.Error("another seed draws the same")
	}
}
