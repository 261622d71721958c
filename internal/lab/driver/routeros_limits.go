package driver

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Restrictions implements Restricted. It checks the device-mode, which can be changed only with a button
// press or power cycle (manual, Device-mode).
func (RouterOS) Restrictions(facts map[string]string) string {
	text := fmt.Sprintf("device-mode %s, cpu-frequency %s", cmp.Or(facts["device_mode"], "not told"),
		cmp.Or(facts["cpu_frequency_set"], "not told"))
	allow := ""
	for _, f := range [...]struct{ feature, is, allowed, means string }{
		{"scheduler", "no", "yes", "no guard can be left there, so nothing is set"},
		{"routerboard", "no", "yes", "its clock, cpu-frequency, cannot be set, not by hand either"},
		{"flagged", "yes", "no", "RouterOS found traces of an intruder and schedules nothing new: no guard " +
			"can be left there, so nothing is set; look through its configuration first"},
	} {
		if facts["device_mode:"+f.feature] == f.is {
			text += "; " + f.feature + "=" + f.is + ": " + f.means
			allow += " " + f.feature + "=" + f.allowed
		}
	}

	if allow != "" {
		text += "; by hand: " + allowROS(allow)
	}

	return text
}

func allowROS(features string) string {
	return "/system/device-mode/update" + features + ", and within 5 minutes press its reset or mode " +
		"button, or cut its power; it then reboots"
}

// mayGuard returns an error if the router's device-mode forbids a guard. It returns nil if the device-mode is
// unknown.
func mayGuard(ctx context.Context, h host.Host) error {
	mode, _ := first(ctx, h, "/system/device-mode/print as-value")
	if !mode.yes("flagged") && (mode["scheduler"] == "" || mode.yes("scheduler")) {
		return nil
	}

	facts, _ := RouterOS{}.Facts(ctx, h)
	return lacks("%s", RouterOS{}.Restrictions(facts))
}

// clockByHand returns an error that contains the commands with which the owner can set the CPU frequency. The
// driver does not set the frequency, because it is a setting of the boot loader (manual, RouterBOARD) that a
// guard could not undo in time.
func clockByHand(ctx context.Context, h host.Host, s record.Setting) error {
	facts, err := RouterOS{}.Facts(ctx, h)
	now := facts["cpu_frequency_set"]
	if err != nil || now == "" {
		return cmp.Or(err, lacks("it has no cpu-frequency; its clock is measured as found"))
	}

	ends := map[string]string{"performance": "the greatest", "powersave": "the least"}
	value := cmp.Or(ends[s.Value], "auto")
	if share, err := strconv.ParseFloat(strings.TrimSuffix(s.Value, "%"), 64); err == nil {
		value = "the nearest to " + s.Value + " of the greatest"
		if mhz, err := strconv.ParseFloat(strings.TrimSuffix(now, "MHz"), 64); err == nil {
			value = fmt.Sprintf("%.0fMHz or the nearest", mhz*share/100)
		}
	}

	steps := ""
	if facts["device_mode:routerboard"] == "no" {
		steps = allowROS(" routerboard=yes") + "; "
	}

	return lacks("the clock is a setting of the boot loader, taken at a reboot; by hand: %s"+
		"/system/routerboard/settings/set cpu-frequency=VALUE (now %s), VALUE being %s of those that F1 "+
		"shows there; /system/reboot; then leave %s out of the plan: the clock is measured as found, and "+
		"sampled", steps, now, value, s.Knob)
}
