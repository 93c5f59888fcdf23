// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Exit statuses of a Program besides 0.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInterrupted = 130
)

// Program is a program with flags that prints to a terminal. It has the flags
// -h and -v besides its own.
type Program struct {
	// Name is the name of the program in usage and errors.
	Name string

	// Flags defines the program's own flags; nil: it has none.
	Flags func(*flag.FlagSet)

	// Check returns what is wrong with the values of the flags; nil: nothing.
	Check func() error

	// Run runs the program. It must return soon after ctx ends, with nothing
	// left running. An UnmetError, or another error, makes the exit status
	// ExitFailed, but ExitInterrupted if ctx has ended.
	Run func(ctx context.Context, out *Printer, log logr.Logger) error
}

// Main runs the program with the arguments of the process, and ends the process
// with its status. SIGINT and SIGTERM end the context of Run; a second one ends
// the process at once.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	status := p.Execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// Execute runs the program and returns its exit status.
func (p Program) Execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	verbose, err := p.parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return ExitUsage
	}
	log, restore, err := logging(verbose, stderr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return ExitFailed
	}
	defer restore()
	out := NewPrinter(stdout)
	err = p.Run(ctx, out, log)
	unmet, failed := errors.AsType[*UnmetError](err)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		out.Say("interrupted; everything is stopped")
		return ExitInterrupted
	case failed:
		out.Say("FAILED")
		_, _ = fmt.Fprintf(stderr, "expected: %s\ngot:      %s\n", unmet.Expected, unmet.Got)
	default:
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
	}
	return ExitFailed
}

// parse reads the command line. If it returns an error, it has already printed
// it.
func (p Program) parse(args []string, stderr io.Writer) (verbose bool, err error) {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&verbose, "v", false, "show the logs of the library and of controller-runtime")
	if p.Flags != nil {
		p.Flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", flags.Arg(0))
	} else if p.Check != nil {
		err = p.Check()
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		flags.Usage()
	}
	return verbose, err
}

// logging returns the logger of the library and of controller-runtime, which
// would clutter the output and so discards everything unless verbose. client-go
// has its own logger, klog, which writes to os.Stderr; until restore is called
// its output is discarded, too. Panics are written anyway.
func logging(verbose bool, stderr io.Writer) (log logr.Logger, restore func(), err error) {
	if verbose {
		log = logr.FromSlogHandler(slog.NewTextHandler(stderr, nil))
		ctrl.SetLogger(log)
		return log, func() {}, nil
	}
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return log, nil, err
	}
	was := os.Stderr
	os.Stderr = nowhere
	ctrl.SetLogger(logr.Discard())
	return logr.Discard(), func() {
		os.Stderr = was
		_ = nowhere.Close() // the result does not matter
	}, nil
}
