package main

import (
	"context"
	"fmt"
)

func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// a worker booked 77 and died
	// a worker booked 130 and died
	// a worker booked 93 and was done
	// a late booking: booked by another worker
	// 300 payments of 1.00, 300 booked, 10 accounts hold 300.00
}
