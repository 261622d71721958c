package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
)

// subscribe asks for an address and a network at a device, prints them, and sends something to the router.
func subscribe(ctx context.Context, dev string) (err error) {
	c, err := nclient6.New(dev)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	offer, err := c.Solicit(ctx, dhcpv6.WithIAPD([4]byte{1}))
	if err != nil {
		return err
	}

	got, err := c.Request(ctx, offer)
	if err != nil {
		return err
	}

	na := got.Options.OneIANA()
	pd := got.Options.OneIAPD()
	if na == nil || na.Options.OneAddress() == nil || pd == nil || len(pd.Options.Prefixes()) == 0 {
		return fmt.Errorf("no address or no network in %s", got.Summary())
	}

	fmt.Println(na.Options.OneAddress().IPv6Addr, pd.Options.Prefixes()[0].Prefix)
	to, err := net.Dial("udp6", "[fe80::1%"+dev+"]:9")
	if err != nil {
		return err
	}

	_, err = to.Write([]byte("."))
	return errors.Join(err, to.Close())
}
