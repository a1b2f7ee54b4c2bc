<?php

// Laravel 11 merges this with its own.
return [
    'connections' => [
        'inline' => [ // ZB123
            'driver' => 'sync',
        ],
    ],
    'failed' => [
        'driver' => env('QUEUE_FAILED_DRIVER', 'null'), // ZB121
    ],
];
