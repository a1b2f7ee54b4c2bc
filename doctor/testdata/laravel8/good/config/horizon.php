<?php

return [

    'use' => 'default',

    'prefix' => env('HORIZON_PREFIX', 'shop_horizon:'),

    'defaults' => [
        'supervisor-1' => [
            'connection' => 'redis',
            'queue' => ['default'],
            'tries' => 3,
            'timeout' => 60,
        ],
    ],

    'environments' => [
        'production' => [
            'supervisor-1' => [
                'maxProcesses' => 10,
                'timeout' => 120,
            ],
        ],
        'local' => [
            'supervisor-1' => [
                'tries' => 0,
                'timeout' => 900,
            ],
        ],
    ],

];
