package guest_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var (
	pairs  = flag.Int("pairs", 0, "pairs of images that TestUpgrades compares, with numbers from 1 on")
	steps  = flag.String("steps", "0,3,10", "by how many per cent the newer image's limit is lower")
	images = flag.String("images", "", "the folder where images are built")
)

// limits are what bounds the rate of a router, as its own system sets it at boot. RATE is in kbit/s, and
// BYTES is the same in kB/s.
var limits = []struct{ name, script, cells string }{
	{"tbf", "tc qdisc add dev $WAN root tbf rate RATEkbit burst 16k limit 100k", tcpCells},
	{"htb", "tc qdisc add dev $WAN root handle 1: htb default 1\n" +
		"tc class add dev $WAN parent 1: classid 1:1 htb rate RATEkbit burst 16k\n" +
		"tc qdisc add dev $WAN parent 1:1 fq_codel", tcpCells},
	{"police", "tc qdisc add dev $LAN clsact\n" +
		"tc filter add dev $LAN ingress matchall action police rate RATEkbit burst 64k drop", udpCells},
	{"limit", "nft add table inet own\n" +
		"nft add chain inet own forward '{ type filter hook forward priority 0; }'\n" +
		"nft add rule inet own forward iifname $LAN limit rate over BYTES kbytes/second burst 64 kbytes drop",
		udpCells},
}

const (
	tcpCells = "  - {direction: up, streams: 1}\n  - {direction: up, streams: 4}\n"
	udpCells = "  - {direction: up, protocol: udp, rate: 80M, size: 1200}\n" +
		"  - {direction: up, protocol: udp, rate: 80M, size: 1400}\n"
	// allCells are what two equal images are compared in.
	allCells = "  - {direction: up, streams: 1}\n  - {direction: up, streams: 2}\n" +
		"  - {direction: up, streams: 4}\n  - {direction: down, streams: 1}\n" +
		"  - {direction: down, streams: 2}\n  - {direction: down, streams: 4}\n" +
		"  - {direction: up, ip: 6}\n  - {direction: down, ip: 6}\n" +
		"  - {direction: up, protocol: udp, rate: 20M}\n  - {direction: down, protocol: udp, rate: 20M}\n"
)

// upgradePlan has cells to follow.
const upgradePlan = `name: upgrade
method: {duration: 500ms, warmup: 300ms, cooldown: 0s, idle: 200ms, runs: 1}
measure: {verify: false, latency_idle: block}
include:
`

// upgraded is the result of a pair of images.
type upgraded struct {
	Number  int
	Step    int // by how many per cent the limit of the newer image is lower
	Limit   string
	Cells   int
	Alarms  int      // cells that are called different
	Worse   int      // regressions
	Named   bool     // the planted difference is listed as a possible cause
	Causes  []string // all differences that are listed
	Seconds float64
}

// TestUpgrades compares pairs of images: the same image twice, and images whose own limit is lower by a few
// per cent. It counts false alarms, steps that are found, and steps whose cause is named.
func TestUpgrades(t *testing.T) {
	needsTime(t)
	dir := *images
	if dir == "" {
		dir = t.TempDir()
	}

	all := kept[upgraded](t, *keepFile)
	for number := 1; number <= *pairs; number++ {
		for _, step := range strings.Split(*steps, ",") {
			var percent int
			if _, err := fmt.Sscan(step, &percent); err != nil {
				t.Fatalf("-steps %s: %v", *steps, err)
			}

			known := slices.ContainsFunc(all, func(x upgraded) bool {
				return x.Number == number && x.Step == percent
			})
			if known {
				continue
			}

			x := upgrade(t, dir, number, percent)
			t.Logf("%+v", x)
			keep(t, *keepFile, x)
			all = append(all, x)
		}
	}

	sums := map[int][5]int{}
	for _, x := range all {
		s := sums[x.Step]
		s[0]++
		s[1] += x.Cells
		s[2] += x.Alarms
		if x.Worse > 0 {
			s[3]++
		}

		if x.Named {
			s[4]++
		}

		sums[x.Step] = s
	}

	for step, s := range sums {
		fmt.Fprintf(t.Output(), "note: step of %d %%: %d pairs with %d cells, %d are called different; "+
			"a regression is reported in %d pairs, the planted cause is named in %d\n", step, s[0], s[1],
			s[2], s[3], s[4])
	}
}

// upgrade builds a pair of images and compares them.
func upgrade(t *testing.T, dir string, number, percent int) upgraded {
	began := time.Now()
	random := rand.New(rand.NewPCG(uint64(number), 19))
	limit := limits[number%len(limits)]
	rate := 20_000 + random.IntN(40_000)
	x := upgraded{Number: number, Step: percent, Limit: limit.name}
	cells := limit.cells
	if percent == 0 {
		cells = allCells
	}

	var o app.UpgradeOptions
	o.On.Lab = record.LabVM
	for i, kbit := range []int{rate, rate * (100 - percent) / 100} {
		name := fmt.Sprintf("image-%d", i)
		values := strings.NewReplacer("RATE", fmt.Sprint(kbit), "BYTES", fmt.Sprint(kbit/8))
		if i == 1 && percent == 0 {
			name = "image-0" // the same file twice
		} else {
			build := exec.Command("../guestdisk/small", dir, name, values.Replace(limit.script))
			said, err := build.CombinedOutput()
			if err != nil {
				t.Fatalf("build %s: %v: %s", name, err, said)
			}
		}

		pl, err := app.ReadPlan("upgrade.yaml", upgradePlan+cells, app.Peer{})
		if err != nil {
			t.Fatal(err)
		}

		image := record.DiskImage{
			File: filepath.Join(dir, name+".img"),
			Key:  filepath.Join(dir, "key"),
		}
		version := app.RouterVersion{Name: fmt.Sprint("version ", i), Image: &image}
		o.Versions = append(o.Versions, version)
		o.Plans = append(o.Plans, pl)
	}

	a := rig.OwnApp(t.Logf)
	a.Events = func() progress.Sink { return progress.Quiet(t.Output()) }
	a.Dirs.Data = t.TempDir()
	compared, _, err := a.Upgrade(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	c := compared[0]
	x.Worse = len(c.Regressions)
	seen, alarmed := map[string]bool{}, map[string]bool{}
	for _, one := range c.Comparisons {
		seen[one.Factors.Key()] = true
		if one.Verdict == statistics.Different {
			alarmed[one.Factors.Key()] = true
		}
	}

	x.Cells, x.Alarms = len(seen), len(alarmed)
	for _, change := range c.Changes {
		if !change.Cause {
			continue
		}

		text, _ := json.Marshal(change) // of strings
		x.Causes = append(x.Causes, string(text))
		x.Named = x.Named || strings.Contains(string(text), limit.name)
	}

	x.Seconds = time.Since(began).Seconds()
	return x
}
