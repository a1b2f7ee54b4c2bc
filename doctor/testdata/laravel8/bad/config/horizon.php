<?php

use Illuminate\Support\Str;

return [

    'use' => 'default',

    'prefix' => env('HORIZON_PREFIX', Str::slug(env('APP_NAME', 'laravel'), '_').'_horizon:'),

    'defaults' => [
        'supervisor-1' => [
            'connection' => 'redis',
            'queue' => ['default'],
            'balance' => 'auto',
            'maxProcesses' => 1,
            'nice' => 0,
        ],
    ],

    'environments' => [
        'production' => [
            'supervisor-1' => [ // ZB120
                'maxProcesses' => 10,
                'timeout' => 120, // ZB110
            ],
            'supervisor-2' => [
                'connection' => 'redis',
                'tries' => 0, // ZB120
            ],
        ],
        'local' => [
            'supervisor-1' => [
                'timeout' => 900,
            ],
        ],
    ],

];
