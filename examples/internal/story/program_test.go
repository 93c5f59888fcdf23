// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
)

func TestTheExitStatusSaysHowTheProgramEnded(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	for name, tc := range map[string]struct {
		args           []string
		ctx            context.Context
		err            error
		status         int
		stdout, stderr string
	}{
		"well":         {status: 0},
		"help":         {args: []string{"-h"}, status: 0, stderr: "-color"},
		"unknown flag": {args: []string{"-x"}, status: ExitUsage, stderr: "-color"},
		"argument":     {args: []string{"now"}, status: ExitUsage, stderr: `unknown argument "now"`},
		"check":        {args: []string{"-color", "none"}, status: ExitUsage, stderr: "no color"},
		"unmet": {
			err: &UnmetError{Expected: "a door", Got: "a wall"}, status: ExitFailed,
			stdout: "FAILED", stderr: "expected: a door\ngot:      a wall",
		},
		"error": {err: errors.New("no luck"), status: ExitFailed, stderr: "painter: no luck"},
		"interrupted": {
			ctx: interrupted, err: errors.New("cut off"), status: ExitInterrupted,
			stdout: "interrupted; everything is stopped",
		},
		"interrupted, and ended well": {ctx: interrupted, status: 0},
	} {
		t.Run(name, func(t *testing.T) {
			color := ""
			painter := Program{
				Name:  "painter",
				Flags: func(flags *flag.FlagSet) { flags.StringVar(&color, "color", "red", "the color") },
				Check: func() error {
					if color == "none" {
						return errors.New("no color")
					}
					return nil
				},
				Run: func(context.Context, *Printer, logr.Logger) error {
					if tc.ctx != nil {
						interrupt()
					}
					return tc.err
				},
			}
			ctx := tc.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			var stdout, stderr bytes.Buffer
			require.Equal(t, tc.status, painter.Execute(ctx, tc.args, &stdout, &stderr))
			require.Contains(t, stdout.String(), tc.stdout)
			require.Contains(t, stderr.String(), tc.stderr)
		})
	}
}

func TestClientGoDoesNotClutterTheStory(t *testing.T) {
	was := os.Stderr
	var stderr bytes.Buffer
	_, restore, err := logging(false, &stderr)
	require.NoError(t, err)
	require.NotSame(t, was, os.Stderr)
	restore()
	require.Same(t, was, os.Stderr)
	require.Zero(t, stderr.Len())

	log, restore, err := logging(true, &stderr)
	require.NoError(t, err)
	require.Same(t, was, os.Stderr, "-v shows it")
	log.Info("Hello")
	restore()
	require.Contains(t, stderr.String(), "Hello")
}
