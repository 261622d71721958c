package driver

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// What RouterOS itself forbids, and what only its owner does. Both menus have settings and no list. Of the
// clock, the manual calls it a setting of the boot loader (RouterBOARD, Settings), and lists its values only
// at the console (F1).
const (
	deviceMode    = "/system/device-mode"
	boardSettings = "/system/routerboard/settings"
)

// rosForbidden are the features of device-mode that we need: the value that forbids, and what that means.
var rosForbidden = [...]struct{ feature, value, means string }{
	{"scheduler", "no", "no guard can be left there, so nothing is set"},
	{"routerboard", "no", "its clock, cpu-frequency, cannot be set, not by hand either"},
	{"flagged", "yes", "RouterOS found traces of an intruder and schedules nothing new: no guard can be left " +
		"there, so nothing is set; look through its configuration first"},
}

// allowROS is how device-mode is changed (manual, Device-mode).
func allowROS(features string) string {
	return deviceMode + "/update " + features + ", and within 5 minutes its reset or mode button, or its " +
		"power off and on; it then reboots"
}

// Restrictions implements Restricted.
func (RouterOS) Restrictions(facts map[string]string) check.Answer {
	a := check.OKBecause("device-mode %s, cpu-frequency %s", cmp.Or(facts["device_mode"], "not told"),
		cmp.Or(facts["cpu_frequency_set"], "not told"))
	var allow []string
	for _, f := range rosForbidden {
		if facts["device_mode:"+f.feature] == f.value {
			a.Reason += "; " + f.feature + "=" + f.value + ": " + f.means
			allow = append(allow, f.feature+"="+map[string]string{"yes": "no", "no": "yes"}[f.value])
		}
	}
	if len(allow) > 0 {
		a = a.Hinted("%s", allowROS(strings.Join(allow, " ")))
	}
	return a
}

// mayGuard fails where no guard can be left. A router that does not tell may find that out by trying.
func mayGuard(ctx context.Context, h host.Host) error {
	facts, _ := RouterOS{}.Facts(ctx, h)
	if facts["device_mode:scheduler"] != "no" && facts["device_mode:flagged"] != "yes" {
		return nil
	}
	a := RouterOS{}.Restrictions(facts)
	return fmt.Errorf("%w: %s; by hand: %s", host.ErrUnsupported, a.Reason, a.Hint)
}

// rosClock is a setting that is made by the clock's, which holds from the next boot on: no undo that a guard
// holds would be in time.
func rosClock(s record.Setting) rosSetting {
	return rosSetting{false, func(ctx context.Context, h host.Host, _ string) (string, error) {
		facts, err := RouterOS{}.Facts(ctx, h)
		if err != nil {
			return "", err
		}
		return "", fmt.Errorf("%w: %s", host.ErrUnsupported, clockByHand(s, facts))
	}, func(ctx context.Context, h host.Host, _, _ string) ([]string, error) {
		_, err := RouterOS{}.Read(ctx, h, s)
		return nil, err
	}}
}

// clockByHand is what makes the clock as a setting wants it.
func clockByHand(s record.Setting, facts map[string]string) string {
	now := facts["cpu_frequency_set"]
	if now == "" {
		return "this router has no cpu-frequency; it is measured as found"
	}
	value := map[string]string{"performance": "the greatest", "powersave": "the least"}[s.Value]
	mhz, err := strconv.ParseFloat(strings.TrimSuffix(now, "MHz"), 64)
	share, wrong := strconv.ParseFloat(strings.TrimSuffix(s.Value, "%"), 64)
	switch {
	case value != "":
		value += " of the values that F1 shows there"
	case err == nil && wrong == nil:
		value = strconv.FormatFloat(mhz*share/100, 'f', 0, 64) + "MHz, or the nearest that F1 shows there"
	case wrong == nil:
		value = s.Value + " of the greatest that F1 shows there, or the nearest"
	default:
		value = "auto, if F1 shows it there"
	}
	steps := boardSettings + "/set cpu-frequency=VALUE (now " + now + "), VALUE being " + value +
		"; /system/reboot"
	if facts["device_mode:routerboard"] == "no" {
		steps = allowROS("routerboard=yes") + "; " + steps
	}
	return "the clock is a setting of the boot loader, taken at a reboot; by hand: " + steps + "; then leave " +
		s.Knob + " out of the plan: the clock is measured as found, and sampled"
}

// TunnelByHand implements Tunnelling. RouterOS makes the private key itself, and no command here shows it.
func (RouterOS) TunnelByHand(kind string, own, other netip.Prefix) string {
	if !strings.HasPrefix(kind, "wireguard") {
		return ""
	}
	const name = rosMark + "-wg"
	return "/interface/wireguard/add name=" + name + " listen-port=51820 mtu=1420; " +
		"/ip/address/add interface=" + name + " address=" + own.String() + "; " +
		"/interface/wireguard/peers/add interface=" + name + " allowed-address=" + other.Addr().String() +
		"/32 public-key=\"THE OTHER END'S\"; :put [/interface/wireguard/get " + name + " public-key] for the " +
		"other end, at " + other.String() + "; UDP port 51820 must pass the chain input; then measured as " +
		"found, with --router-lan " + name + " and without tunnel in the plan"
}
