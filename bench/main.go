// Command bench runs quorumlog and what one would pick instead side by side: on the
// same machine, in turns, with the same payloads, and prints a table of medians,
// ratios and goals. See README.md.
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
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if dir := os.Getenv(tailEnv); dir != "" { // this is the process that P13 kills
		fmt.Fprintln(os.Stderr, writeTail(dir))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sizes are the values of -size.
type sizes []int

func (s *sizes) String() string { return strings.Trim(fmt.Sprint([]int(*s)), "[]") }

func (s *sizes) Set(text string) error {
	*s = nil
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > raftEntry {
			return fmt.Errorf("%q is no size between 1 and %d", part, raftEntry)
		}
		*s = append(*s, n)
	}
	return nil
}

func bench(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	only := flags.String("only", "", "scenarios to run, as P1,P10/100; default all")
	each := sizes{100}
	flags.Var(&each, "size", "bytes of a record's value; several make several tables, as 100,1024")
	duration := flags.Duration("duration", time.Second, "length of each run, opening and closing apart")
	rounds := flags.Int("rounds", 3, "runs of each row")
	large := flags.Int64("large", 10<<30, "bytes of P13's partition")
	quick := flags.Bool("quick", false, "one short run of each row: under a minute for all")
	profiles := flags.String("profile", "", "a directory for a CPU profile of each scenario's first row; prints what is at their top")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *duration <= 0 || *rounds < 1 || *large < 1 {
		return errors.New("-duration, -rounds and -large must be positive")
	}
	r := runner{duration: *duration, rounds: *rounds, large: *large, partitions: 1000, touch: 512 << 20, profiles: *profiles}
	if *quick {
		r.duration, r.rounds, r.touch = min(r.duration, 100*time.Millisecond), 1, 64<<20
		r.large, r.partitions = min(r.large, 128<<20), 100
	}
	r.limit = 5*time.Minute + 10*r.duration
	some := pick(scenarios(), *only)
	if len(some) == 0 {
		return fmt.Errorf("no scenario is called %q", *only)
	}
	fmt.Fprintf(out, "%s, %s/%s, %d processors, %s; %d runs of %v each\n", time.Now().UTC().Format(time.DateTime),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), r.rounds, r.duration)
	var errs []error
	for i, size := range each {
		r.size = size
		if i > 0 {
			some = slices.DeleteFunc(slices.Clone(some), func(s scenario) bool { return s.once })
			r.profiles = ""
		}
		fmt.Fprintf(out, "\nValues of %d bytes:\n\n", size)
		printHead(out)
		errs = append(errs, r.table(ctx, some, out, progress))
	}
	return errors.Join(errs...)
}

// table runs scenarios and prints their rows.
func (r runner) table(ctx context.Context, some []scenario, out, progress io.Writer) error {
	var errs []error
	var tops []top
	for _, s := range some {
		fmt.Fprintln(progress, s.id, s.title)
		results := r.run(ctx, s)
		printRows(out, s, results)
		for _, res := range results {
			errs = append(errs, res.err)
		}
		if first := results[0]; len(first.top.functions) > 0 {
			tops = append(tops, first.top)
		}
		if ctx.Err() != nil {
			break
		}
	}
	for _, t := range tops {
		t.print(out)
	}
	return errors.Join(errs...)
}
