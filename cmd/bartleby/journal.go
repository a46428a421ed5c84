package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/repair"
	"bartleby.mq/internal/server"
)

// Exit codes of "bartleby journal check" and its kin.
const (
	exitDamage     = 1 // there is damage
	exitCannotLook = 2 // nobody could look, or the repair is not possible
)

// exitError is an error with its exit code.
type exitError struct {
	code int
	err  error
}

// Error is what went wrong; "" if it was said already.
func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// ExitCode is what the program exits with.
func (e *exitError) ExitCode() int { return e.code }

func journalCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "journal", Short: "Look at the data directory of a stopped node, and repair it", Args: cobra.NoArgs,
		Long: "These commands need the data directory of a node that is stopped (--data-dir, or\n" +
			"$BARTLEBY_DATA_DIR). They exit with 0 if there is no damage, with 1 if\n" +
			"there is, and with 2 if nobody could look.",
	}
	c.AddCommand(journalCheckCommand(), journalDumpCommand(), journalRepairCommand())
	return c
}

// onStopped runs f on the data directory that --data-dir names, with nodes kept out.
func onStopped(c *cobra.Command, f func(dir string) error) (err error) {
	dir, err := c.Flags().GetString("data-dir")
	if err == nil && dir == "" {
		dir = config.EnvironmentPaths(os.Getenv).DataDir
	}
	if err == nil && dir == "" {
		err = errors.New("--data-dir or $BARTLEBY_DATA_DIR is needed: the data directory of a stopped node")
	}
	var release func() error
	if err == nil {
		release, err = server.LockDataDir(dir)
	}
	if err != nil {
		return &exitError{exitCannotLook, err}
	}
	defer func() { err = errors.Join(err, release()) }()
	return f(dir)
}

func journalCheckCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "check --data-dir DIR [--json]", Short: "Say what is damaged, and which queues and how many messages that touches", Args: cobra.NoArgs,
		Long: "Reads all that a node has on disk: every frame of both logs, kept files, the index, and every message of every queue. Changes\n" +
			"nothing; it works on links and copies below the data directory, which it removes. Takes about as long as reading the disk once.",
		RunE: func(c *cobra.Command, _ []string) error {
			return onStopped(c, func(dir string) error {
				r, err := repair.Examine(store.OwnerOnly, dir, repair.SkipFrame)
				if err != nil {
					return &exitError{exitCannotLook, err}
				}
				if asJSON {
					err = writeJSON(c.OutOrStdout(), r)
				} else if err = r.Write(c.OutOrStdout()); err == nil && !r.Clean() {
					err = writeWhatToRun(c.OutOrStdout(), r)
				}
				if err == nil && !r.Clean() {
					err = &exitError{code: exitDamage}
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "for programs")
	return c
}

// writeWhatToRun names the repair that may be: where skipping is of no use, and the report says that cutting may be,
// that one. The other damage needs something else first, which the report says.
func writeWhatToRun(w io.Writer, r *repair.Report) error {
	flag := "--skip-frame"
	if r.Failed != "" {
		if !r.TryCut {
			return nil
		}
		flag = "--cut"
	}
	_, err := fmt.Fprintf(w, "to see what a repair would do, run: bartleby journal repair --data-dir %s %s\n", inShell(r.Dir), flag)
	return err
}

// inShell is a word as a shell reads it.
func inShell(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func journalDumpCommand() *cobra.Command {
	var from string
	var o repair.DumpOptions
	c := &cobra.Command{
		Use: "dump --data-dir DIR [--from SEGMENT:OFFSET] [--queue NAME]", Short: "Show the frames of the journal", Args: cobra.NoArgs,
		Long: "A line for each operation: where its frame is, what was done, to which entries of which queues. Damage is listed at the end.",
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if from != "" {
				if o.From, err = repair.ParsePos(from); err != nil {
					return &exitError{exitCannotLook, err}
				}
			}
			if c.Flags().Changed("vhost") {
				o.VHost, _ = c.Flags().GetString("vhost")
			}
			return onStopped(c, func(dir string) error { return repair.Dump(store.OwnerOnly, dir, o, c.OutOrStdout()) })
		},
	}
	c.Flags().StringVar(&from, "from", "", "where to begin, as SEGMENT:OFFSET")
	c.Flags().StringVar(&o.Queue, "queue", "", "only operations on this queue; --vhost may be given too")
	return c
}

func journalRepairCommand() *cobra.Command {
	var skip, cut, yes bool
	c := &cobra.Command{
		Use: "repair --data-dir DIR --skip-frame|--cut [--yes]", Short: "Give up what is damaged, so that the node starts", Args: cobra.NoArgs,
		Long: "Without --yes it only tells what it would do. With it, files that are changed are copied to quarantine/TIME below the data directory,\n" +
			"beside a report of what was lost; damage in the journal is skipped or cut off; messages that cannot be read are dropped.\n\n" +
			"--skip-frame loses what the damaged frames said: messages that they brought are lost, and what they took away comes back. What is\n" +
			"intact behind them counts.\n" +
			"--cut loses everything behind the damage too: every queue is what it was at that moment.",
		RunE: func(c *cobra.Command, _ []string) error {
			o := repair.Options{How: repair.SkipFrame, Apply: yes, Name: time.Now().UTC().Format("20060102T150405Z")}
			if skip == cut {
				return &exitError{exitCannotLook, errors.New("say which: --skip-frame or --cut (see --help)")}
			}
			if cut {
				o.How = repair.Cut
			}
			return onStopped(c, func(dir string) error {
				r, err := repair.Repair(store.OwnerOnly, dir, o, c.OutOrStdout())
				switch {
				case err != nil:
					return &exitError{exitCannotLook, err}
				case !yes && !r.Clean():
					return &exitError{code: exitDamage}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&skip, "skip-frame", false, "lose the damaged frames only")
	c.Flags().BoolVar(&cut, "cut", false, "lose everything behind the first damage")
	c.Flags().BoolVar(&yes, "yes", false, "do it")
	return c
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
