package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// options are the options of every verb.
type options struct {
	url, user, password, dataDir string
	passwordFile                 string
	vhost                        string
	quiet, silent, noHeaders     bool
	formatter                    string
	timeout                      float64 // seconds

	node      string // does not choose a node, but must not name another one: see meant
	longNames bool   // RabbitMQ's, without a meaning here
}

// verb is one command.
type verb struct {
	name    string
	usage   string // the arguments in the usage text, as RabbitMQ prints it
	short   string
	long    string // further text of the help
	min     int    // arguments
	max     int    // arguments; -1 is no limit
	aliases []string
	hidden  bool
	health  bool                 // it asks whether the node is healthy: one whose application is stopped is not
	ours    bool                 // no verb of RabbitMQ's: an option with two values is refused
	flags   func(*pflag.FlagSet) // declares the verb's own
	run     func(*invocation) error
}

// invocation is one call of a verb.
type invocation struct {
	*options
	ctx  context.Context
	args []string
	set  func(flag string) bool // whether it was given
	out  io.Writer
	errs io.Writer
	api  *client
	name string // of the node, as texts show it

	version string // of the program
}

// Command returns the root of all verbs. name is what the program is called as:
// "rabbitmqctl" or "bartleby"; the caller may add commands of its own.
func Command(name string) *cobra.Command {
	if name == adminName {
		return adminCommand()
	}
	o := &options{}
	root := &cobra.Command{
		Use: name, Short: "Administer a node", SilenceUsage: true, SilenceErrors: true,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return c.Help()
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&o.url, "url", "", "address of the management API (default "+defaultURL+", or the address in the data directory)")
	f.StringVar(&o.user, "user", "", "user of the management API; also $"+userVariable)
	f.StringVar(&o.password, "password", "", "the user's password; also $"+passwordVariable)
	f.StringVar(&o.passwordFile, "password-file", "", "file that contains the password, which hides it from other users; also $"+passwordFileVariable)
	f.StringVar(&o.dataDir, "data-dir", "", "data directory of a node on this machine, to connect as its owner; also $"+dataDirVariable)
	f.StringVarP(&o.vhost, "vhost", "p", "/", "virtual host, for commands that act on one")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no informational messages")
	f.BoolVarP(&o.silent, "silent", "s", false, "no informational messages and no table headers")
	f.BoolVar(&o.noHeaders, "no-table-headers", false, "no table headers")
	f.StringVar(&o.formatter, "formatter", "", "table, json, csv or pretty_table")
	f.Float64VarP(&o.timeout, "timeout", "t", 0, "seconds to wait for the node's answer")
	f.StringVarP(&o.node, "node", "n", "", "the node's name, for texts; a name on another machine needs --url")
	f.BoolVarP(&o.longNames, "longnames", "l", false, "accepted for compatibility and ignored")
	f.VisitAll(remember)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return invalidOption(c, err) })
	for _, group := range groupsOf(name) {
		for _, v := range group() {
			if v.name == "version" && name == ownName {
				continue // the program's own
			}
			root.AddCommand(v.command(o))
		}
	}
	if name != "rabbitmq-plugins" {
		root.AddCommand(dlqCommand(o), rulesCommand(o), webhooksCommand(o))
	}
	helpKnowsItsVerbs(root)
	return root
}

// helpKnowsItsVerbs makes the help of a verb that is not there the error that the verb would be.
func helpKnowsItsVerbs(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		show := help.Run
		help.RunE = func(c *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 && found.HasSubCommands() {
				return unknownVerb(root, strings.Join(args, " "))
			}
			show(c, args)
			return nil
		}
	}
}

// ownName is the program that is the broker too.
const ownName = "bartleby"

// Names are the other names under which the program may be called: RabbitMQ's tools. All
// except the last two have the same verbs here, because people often look for a verb in the
// wrong tool.
var Names = []string{"rabbitmqctl", "rabbitmq-diagnostics", "rabbitmq-queues", "rabbitmq-upgrade", "rabbitmq-plugins", adminName}

// groupsOf are the verbs of a tool.
func groupsOf(name string) []func() []verb {
	if name == "rabbitmq-plugins" {
		return []func() []verb{pluginVerbs}
	}
	return []func() []verb{
		nodeVerbs, diagnosticVerbs, userVerbs, permissionVerbs, topicPermissionVerbs, vhostVerbs, metadataVerbs, policyVerbs, limitVerbs, parameterVerbs,
		queueVerbs, leaderVerbs, exchangeVerbs, bindingVerbs, connectionVerbs, channelVerbs, consumerVerbs, definitionVerbs, whereVerbs, shovelVerbs,
		ours(replayVerbs), ours(deathVerbs), ours(dropVerbs), ours(lintVerbs), ours(strandedVerbs), ours(asideVerbs), ours(backupVerbs), unsupportedVerbs,
	}
}

// ours are verbs that RabbitMQ does not have.
func ours(group func() []verb) func() []verb {
	return func() []verb {
		verbs := group()
		for n := range verbs {
			verbs[n].ours = true
		}
		return verbs
	}
}

func (v verb) command(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: strings.TrimSpace(v.name + " " + v.usage), Short: v.short, Long: strings.TrimSpace(v.short + "\n\n" + v.long), Aliases: v.aliases, Hidden: v.hidden,
		DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) < v.min:
				return invalidArguments(c, args, "not enough arguments.")
			case v.max >= 0 && len(args) > v.max:
				return invalidArguments(c, args, "too many arguments.")
			}
			if name := contradicted(c.Flags()); v.ours && name != "" {
				return invalidArguments(c, args, "--"+name+" is given twice, with different values.")
			}
			return nil
		},
	}
	if v.flags != nil {
		v.flags(c.Flags())
	}
	c.Flags().VisitAll(remember)
	c.RunE = func(c *cobra.Command, args []string) error {
		i := &invocation{options: o, ctx: c.Context(), args: args, set: c.Flags().Changed, out: c.OutOrStdout(), errs: c.ErrOrStderr(), version: c.Root().Version}
		if i.ctx == nil {
			i.ctx = context.Background()
		}
		if o.formatter != "" && !slices.Contains(formatters, o.formatter) {
			return invalidArguments(c, args, fmt.Sprintf("Formatter %s is not supported", o.formatter))
		}
		var err error
		if i.api, err = newClient(o); err != nil {
			return err
		}
		if i.name = o.node; i.name == "" {
			i.name = "bartleby@localhost"
		}
		if err := i.meant(); err != nil {
			return err
		}
		err = explain(v.run(i))
		if v.health && errors.Is(err, errAppStopped) {
			return fail(exitUnavailable, "%s", errAppStopped)
		}
		var wrong *argumentError
		if errors.As(err, &wrong) {
			return invalidArguments(c, args, wrong.text)
		}
		return err
	}
	return c
}

// given is the value of an option, and remembers whether its line has several. The last one counts for RabbitMQ's tools.
type given struct {
	pflag.Value
	first           string
	set, contradict bool
}

// Set sets the value.
func (g *given) Set(text string) error {
	g.contradict = g.contradict || g.set && text != g.first
	if !g.set {
		g.set, g.first = true, text
	}
	return g.Value.Set(text)
}

// remember lets an option remember what it is given, unless it is a list.
func remember(f *pflag.Flag) {
	if _, list := f.Value.(pflag.SliceValue); !list {
		f.Value = &given{Value: f.Value}
	}
}

// contradicted is an option that has two values, "" if there is none. With the last of them alone a command would do something else than its
// line says.
func contradicted(set *pflag.FlagSet) (name string) {
	set.Visit(func(f *pflag.Flag) {
		if g, is := f.Value.(*given); is && g.contradict {
			name = f.Name
		}
	})
	return name
}

// meant refuses a node on another machine if only this machine was looked at: the command would act on the wrong node. A script
// for RabbitMQ names a node by -n, and the node here may have another name; so any name on this machine is accepted.
func (i *invocation) meant() error {
	_, host, _ := strings.Cut(i.options.node, "@")
	if host == "" || i.api.named || isHere(host) {
		return nil
	}
	var o struct{ Node string }
	if err := i.get("overview?columns=node", &o); err != nil || o.Node == i.options.node {
		return explain(err)
	}
	return fail(exitUnavailable, "node %s is not the node at %s, which is %s. To administer another node, name its address by --url.", i.options.node, i.api.where, o.Node)
}

// isHere says whether a host name is this machine's.
func isHere(host string) bool {
	short := func(name string) string { return strings.ToLower(strings.SplitN(name, ".", 2)[0]) }
	here, err := os.Hostname()
	return strings.EqualFold(host, "localhost") || host == "127.0.0.1" || err == nil && short(host) == short(here)
}

// Execute runs the command that the process was called with, prints what went
// wrong as rabbitmqctl does, and returns the exit code. Errors of commands that
// are not ours are printed on one line and are code 1, unless they have an ExitCode.
func Execute(ctx context.Context, root *cobra.Command) (code int) {
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var coded interface {
		error
		ExitCode() int
	}
	if errors.As(err, &coded) {
		if text := coded.Error(); text != "" {
			_, _ = fmt.Fprintln(root.ErrOrStderr(), "Error:", text)
		}
		return coded.ExitCode()
	}
	var f *failure
	if !errors.As(err, &f) {
		_, _ = fmt.Fprintln(root.ErrOrStderr(), "Error:", err)
		return 1
	}
	_, _ = fmt.Fprintln(root.ErrOrStderr(), f.text)
	return f.code
}

// say prints an informational message, unless an option turns it off or a program reads the
// output.
func (i *invocation) say(format string, args ...any) {
	if !i.quiet && !i.silent && i.formatter != "json" && i.formatter != "csv" {
		_, _ = fmt.Fprintf(i.out, format+"\n", args...)
	}
}

// print prints a result.
func (i *invocation) print(format string, args ...any) {
	_, _ = fmt.Fprintf(i.out, format+"\n", args...)
}

// limit is the timeout of the node's answer, d by default.
func (i *invocation) limit(d time.Duration) time.Duration {
	if i.timeout > 0 {
		return time.Duration(i.timeout * float64(time.Second))
	}
	return d
}
