package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// transferRules is the part of the help that push and pull have in common.
const transferRules = `

A run arrives whole or not at all. A run that the other side already has changes
nothing there; if it was continued since, the rest is added. A run of the same id with
other content is refused, and so is one that was deleted there. Runs that have not ended
stay where they are. Reports are not copied: chokepoint report writes them anew.`

func newPushCommand(p *program) *cobra.Command {
	return p.transferring("to", &cobra.Command{
		Use:   "push [RUN…] --to STORE",
		Short: "Copy runs of this machine to another store",
		Long: `Copy runs of this machine's own store to another one: a PostgreSQL database, by its URL,
or a directory. Without RUN it copies all ended runs that are missing there or shorter
there. A new database gets its tables; those of an older chokepoint are updated.` + transferRules,
		ValidArgsFunction: completeRuns(p, 1000),
	})
}

func newPullCommand(p *program) *cobra.Command {
	return p.transferring("from", &cobra.Command{
		Use:   "pull [RUN…] --from STORE",
		Short: "Copy runs of another store to this machine",
		Long: `Copy runs of another store to this machine's own one: those of a PostgreSQL database, by
its URL, or of a directory. Without RUN it copies all ended runs that are missing here or
shorter here.` + transferRules,
	})
}

// transferring completes the command push or pull. flag names the other store, "to" or "from" which to copy.
func (p *program) transferring(flag string, cmd *cobra.Command) *cobra.Command {
	var place string
	cmd.Flags().StringVar(&place, flag, "",
		"copy "+flag+" this `STORE` (default: $CHOKEPOINT_STORE, if it is a URL)")
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		own, other, err := p.twoStores(flag, place)
		if err != nil {
			return err
		}

		if flag == "from" {
			own, other = other, own
		}

		return p.transfer(cmd.Context(), own, other, args)
	}
	return addJSON(cmd, "print one JSON object per run, with the hash of its content")
}

// twoStores returns the directories with this machine's store, and the directories with the store that a flag
// names.
func (p *program) twoStores(flag, place string) (own, other app.Dirs, err error) {
	own, other = p.Dirs, p.Dirs
	own.Store = ""
	switch {
	case place != "" && store.OnServer(p.place):
		return own, other, app.Usage("--store names a directory of this machine here",
			"--store and --%s name two other stores", flag)
	case place != "":
		other = other.At(place)
	case other.Store == "":
		return own, other, app.Usage("such as --"+flag+
			" postgres://USER@HOST/DATABASE, or set CHOKEPOINT_STORE to it", "the other store is not named")
	}

	return own, other, other.CheckStore()
}

// transfer copies runs and prints their names.
func (p *program) transfer(ctx context.Context, from, to app.Dirs, runs []string) error {
	sent, err := from.Transfer(ctx, to, runs)
	place := to.StoreName()
	for _, s := range sent {
		text := fmt.Sprintf("run %s is in %s already\n", s.Run, place)
		if s.Changed {
			text = fmt.Sprintf("run %s: copied to %s\n", s.Run, place)
		}

		if s.Longer {
			text = app.LongerNote(s, place) + "\n"
		}

		if s.Name != "" {
			p.note("%s", app.NameNote(s))
		}

		err = errors.Join(err, p.line(s, text))
	}

	if len(sent) == 0 && err == nil {
		p.note("%s lacks no ended run of %s", place, from.StoreName())
	}

	return err
}
