// Command bench runs quorumlog and what one would pick instead side by side: on the
// same machine, in turns, with the same payloads, and prints a table of medians and
// ratios. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	only := flags.String("only", "", "scenarios to run, as P1,P10/100; default all")
	size := flags.Int("size", 100, "bytes of a record's value")
	duration := flags.Duration("duration", 2*time.Second, "length of each run, opening and closing apart")
	rounds := flags.Int("rounds", 5, "runs of each row")
	quick := flags.Bool("quick", false, "one short run of each row: under a minute for all")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *size < 1 || *duration <= 0 || *rounds < 1 {
		return errors.New("-size, -duration and -rounds must be positive")
	}
	r := runner{size: *size, duration: *duration, rounds: *rounds, touch: 512 << 20}
	if *quick {
		r.duration, r.rounds, r.touch = min(r.duration, 150*time.Millisecond), 1, 64<<20
	}
	r.limit = time.Minute + 10*r.duration
	some := pick(scenarios(), *only)
	if len(some) == 0 {
		return fmt.Errorf("no scenario is called %q", *only)
	}
	fmt.Fprintf(out, "%s, %s/%s, %d processors, %s; values of %d bytes, %d runs of %v each\n\n", time.Now().UTC().Format(time.DateTime),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), r.size, r.rounds, r.duration)
	printHead(out)
	var errs []error
	for _, s := range some {
		fmt.Fprintln(progress, s.id, s.title)
		results := r.run(ctx, s)
		printRows(out, s, results)
		for _, res := range results {
			errs = append(errs, res.err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
