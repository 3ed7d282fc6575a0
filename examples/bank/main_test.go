package main

import (
	"context"
	"fmt"
)

func Example() {
	if err := run(context.Background(), 90); err != nil {
		fmt.Println(err)
	}
	// Output: 20 accounts hold 2000
}
