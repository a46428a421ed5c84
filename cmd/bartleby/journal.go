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

// Exit codes of the "bartleby journal" commands.
const (
	exitDamage     = 1 // there is damage
	exitCannotLook = 2 // the data directory could not be examined, or the repair is not possible
)

// exitError is an error with its exit code.
type exitError struct {
	code int
	err  error
}

// Error is what went wrong; "" if it was already printed.
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
		Use: "journal", Short: "Examine and repair the data directory of a stopped node", Args: cobra.NoArgs,
		Long: "These commands need the data directory of a stopped node (--data-dir or\n" +
			"$BARTLEBY_DATA_DIR). They exit with 0 if there is no damage, with 1 if there\n" +
			"is damage, and with 2 if the directory could not be examined.",
	}
	c.AddCommand(journalCheckCommand(), journalDumpCommand(), journalRepairCommand())
	return c
}

// onStopped runs f on the data directory that --data-dir names. It holds the directory's
// lock, so no node can start there.
func onStopped(c *cobra.Command, f func(dir string) error) (err error) {
	dir, err := c.Flags().GetString("data-dir")
	if err == nil && dir == "" {
		dir = config.EnvironmentPaths(os.Getenv).DataDir
	}
	if err == nil && dir == "" {
		err = errors.New("name the data directory of a stopped node with --data-dir or $BARTLEBY_DATA_DIR")
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
		Use: "check --data-dir DIR [--json]", Short: "Report damage, and the queues and messages that it affects", Args: cobra.NoArgs,
		Long: "Reads everything that a node has on disk: every frame of both logs, kept files, the index, and every message of every queue.\n" +
			"Changes nothing: it works on links and copies below the data directory and removes them. Takes about as long as reading all data once.",
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
	c.Flags().BoolVar(&asJSON, "json", false, "write the report as JSON")
	return c
}

// writeWhatToRun names the repair to try: --skip-frame, or --cut if the report says that only cutting may help.
// It names none if something else must be done first, which the report says.
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

// inShell quotes a word for a shell.
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
		Long: "Writes a line for each operation: the position of its frame, the operation, and the entries and queues it changed. Damage is listed at the end.",
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
	c.Flags().StringVar(&from, "from", "", "position to start from, as SEGMENT:OFFSET")
	c.Flags().StringVar(&o.Queue, "queue", "", "only operations on this queue; may be combined with --vhost")
	return c
}

func journalRepairCommand() *cobra.Command {
	var skip, cut, yes bool
	c := &cobra.Command{
		Use: "repair --data-dir DIR --skip-frame|--cut [--yes]", Short: "Remove damaged data, so that the node starts", Args: cobra.NoArgs,
		Long: "Without --yes it only reports what it would do. With --yes it copies the files that it changes to quarantine/TIME below the data\n" +
			"directory, with a report of what was lost. It then skips or cuts off damage in the journal, and drops messages that cannot be read.\n\n" +
			"--skip-frame loses the operations of the damaged frames: messages published there are lost, and messages removed there come back.\n" +
			"Intact frames after the damage are kept.\n" +
			"--cut also loses everything after the damage: every queue goes back to its state at that moment.",
		RunE: func(c *cobra.Command, _ []string) error {
			o := repair.Options{How: repair.SkipFrame, Apply: yes, Name: time.Now().UTC().Format("20060102T150405Z")}
			if skip == cut {
				return &exitError{exitCannotLook, errors.New("choose --skip-frame or --cut (see --help)")}
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
	c.Flags().BoolVar(&skip, "skip-frame", false, "lose only the damaged frames")
	c.Flags().BoolVar(&cut, "cut", false, "lose everything after the first damage")
	c.Flags().BoolVar(&yes, "yes", false, "change the data directory")
	return c
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
